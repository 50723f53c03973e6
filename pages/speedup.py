"""Speedup: GPU types on the same work, with intervals and theory; precision and size beside."""

from functools import partial

import streamlit as st

from core.charts import speedup
from core.charts.tables import cells as cells_tables
from core.charts.tables import reported as reported_tables
from core.charts.tables import speedup as speedup_tables
from core.charts.theme import short_name
from pages.parts import choose, shell, show, stored, view

shell.start("Speedup")

# Choose: measured works that GPU types share, or what others report.
cells, failed = stored.measured(), stored.failed()
shared = len(cells) > 0 and stored.kept(cells_tables.works)["cards"].max() > 1
bar = st.columns([3, 9], vertical_alignment="bottom")
with bar[0]:
    origin = view.choice(
        "Origin",
        ["measured", "reported"] if len(cells) else ["reported"],
        key="origin",
        default="measured" if shared else "reported",
        kind="segments",
    )

pairs = stored.reported_pairs() if origin == "reported" else []
if pairs:
    if not shared:
        bar[1].caption(
            "Two GPU types with the same work are not measured here yet, so this page opens on what others report; "
            "a CPU beside a GPU is under measured. A run file from a second card, on the Data page, changes that."
        )
    show.sentence(pairs[0]["headline"], verdict=pairs[0]["verdict"])
    rows, theory = reported_tables.reported_rows(pairs)
    finding = reported_tables.reported_finding(rows)
    show.chart(
        speedup.speedup_bars,
        rows,
        theory,
        "the slower card",
        finding,
        reported_tables.CONDITIONS,
        time_header="reported times",
        table=partial(reported_tables.reported_pair_table, rows),
        alt=finding,
        key="reported",
    )

if len(cells) and (origin == "measured" or not shared):
    if origin == "reported":
        st.subheader("Measured here", anchor=False)
    work, precision = choose.work("devices" if origin == "measured" and not shared else "cards")
    of_work = stored.kept(cells_tables.of_work, work)
    same = of_work[of_work["precision"] == precision]
    devices = cells_tables.device_order(same)
    baseline = devices["gpu_label"].iloc[0]

    if origin == "measured":
        keys = dict(zip(devices["gpu_label"], devices["gpu_key"], strict=True))
        with bar[1]:
            baseline = view.choice("Baseline", list(keys), key="baseline", show=short_name)
        filters = choose.work_filters(work, precision)
        sides = {label: choose.selector(label, keys[label]) for label in keys}
        answers = [stored.compared(sides[baseline], sides[label], filters) for label in keys if label != baseline]
        bars = speedup_tables.speedup_rows(answers, baseline, keys[baseline])
        lines = speedup_tables.speedup_theory(answers)
        if len(bars):
            finding = speedup_tables.speedup_finding(bars, lines, baseline)
            show.sentence(finding + ".")
            show.chart(
                speedup.speedup_bars,
                bars,
                lines,
                short_name(baseline),
                speedup_tables.range_finding(bars, baseline),
                speedup_tables.speedup_conditions(same, bars, lines),
                table=partial(speedup_tables.speedup_table, bars),
                alt=finding,
                key="bars",
            )
        else:
            show.empty(
                f"Only the {short_name(baseline)} has this work in {precision}.",
                "Choose another size or precision, or bring a run file of another device.",
                "Data",
            )
        lost = cells_tables.of_work(failed, work)
        lost = lost[(lost["precision"] == precision) & ~lost["gpu_label"].isin(same["gpu_label"])]
        if len(lost):
            show.note(speedup_tables.failed_words(lost))

    grid = stored.kept_with_failed(speedup_tables.heat_cells, work, baseline, precision)
    finding = speedup_tables.heat_finding(grid)
    show.chart(
        speedup.heat_map,
        grid,
        finding,
        speedup_tables.heat_conditions(of_work, baseline, precision),
        table=lambda: grid,
        alt=finding,
        key="heat",
    )

    axes = stored.kept(speedup_tables.size_axes, work)
    if axes:
        axis = view.choice("Size", sorted(axes, key=lambda name: -axes[name]), key="axis", kind="segments")
        points = stored.kept_with_failed(speedup_tables.size_points, work, axis, precision)
        if len(points):
            finding = speedup_tables.size_finding(points, axis)
            show.chart(
                speedup.size_curve,
                points,
                speedup_tables.AXIS_NAMES[axis],
                finding,
                speedup_tables.size_conditions(points, work, axis),
                table=partial(speedup_tables.size_table, points, axis),
                alt=finding,
                key="curve",
            )
elif not len(cells) and origin == "reported":
    show.empty(
        "Nothing is measured here yet.",
        "The quick sweep takes about a minute, also without a GPU.",
        "Sweep",
        "Measure this machine",
    )
