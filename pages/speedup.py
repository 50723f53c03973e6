"""Speedup: GPU types on the same work, with intervals and theory; precision and size beside."""

import streamlit as st

from core.answers.two import explain_two
from core.charts import speedup
from core.charts.tables import cells as cells_tables
from core.charts.tables import reported as reported_tables
from core.charts.tables import speedup as speedup_tables
from core.charts.theme import short_name
from pages.parts import choose, shell, show, stored, view

shell.start("Speedup")

# Choose: measured works that GPU types share, or what others report.
cells, everything = stored.ok_cells(), stored.cells()
failed = everything[(everything["status"] != "ok") & ~everything["superseded"].astype(bool)]
shared = len(cells) > 0 and cells_tables.works(cells)["cards"].max() > 1
bar = st.columns([3, 9], vertical_alignment="bottom")
with bar[0]:
    origin = view.choice(
        "Origin",
        ["measured", "reported"] if len(cells) else ["reported"],
        key="origin",
        default="measured" if shared else "reported",
        kind="segments",
    )

pairs = reported_tables.reported_pairs(stored.reported(), explain_two) if origin == "reported" else []
if pairs:
    rows, theory = reported_tables.reported_rows(pairs)
    if not shared:
        bar[1].caption(
            "Two GPU types with the same work are not measured here yet, so this page opens on what others "
            "report. A run file from a second card changes that: the Data page takes it."
        )
    show.sentence(pairs[0]["headline"], verdict=pairs[0]["verdict"])
    finding = reported_tables.reported_finding(rows)
    made = speedup.speedup_bars(
        rows,
        theory,
        "the slower card",
        finding,
        "reported by others, hollow; target / baseline; no interval, n 1 each; long dash bandwidth, "
        "short dash arithmetic, both from data sheets",
        show.mode(),
        time_header="reported times",
    )
    show.chart(made, reported_tables.reported_pair_table(rows), finding, key="reported")

if len(cells) and (origin == "measured" or not shared):
    if origin == "reported":
        st.subheader("Measured here", anchor=False)
    work, precision = choose.work(cells)
    of_work = cells_tables.of_work(cells, work)
    same = of_work[of_work["precision"] == precision]
    devices = cells_tables.device_order(same)

    if origin == "measured":
        keys = dict(zip(devices["gpu_label"], devices["gpu_key"], strict=True))
        with bar[1]:
            baseline = view.choice("Baseline", list(keys), key="baseline", show=short_name)
        filters = choose.work_filters(work, precision)
        answers = [
            stored.compared(choose.selector(baseline, keys[baseline]), choose.selector(label, keys[label]), filters)
            for label in keys
            if label != baseline
        ]
        rows, theory = (
            speedup_tables.speedup_rows(answers, baseline, keys[baseline]),
            speedup_tables.speedup_theory(answers),
        )
        if len(rows):
            finding = speedup_tables.speedup_finding(rows, theory, baseline)
            show.sentence(finding + ".")
            made = speedup.speedup_bars(
                rows,
                theory,
                short_name(baseline),
                speedup_tables.range_finding(rows, baseline),
                speedup_tables.speedup_conditions(same, rows),
                show.mode(),
            )
            show.chart(made, speedup_tables.speedup_table(rows), finding, key="bars")
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

    base = devices["gpu_label"].iloc[0] if origin == "reported" else baseline
    grid = speedup_tables.heat_cells(of_work, cells_tables.of_work(failed, work), base, precision)
    finding = speedup_tables.heat_finding(grid)
    made = speedup.heat_map(
        grid,
        finding,
        f"ratio of median times against {short_name(base)} in {precision} (1x), without "
        f"interval; {cells_tables.common_words(of_work)}",
        show.mode(),
    )
    show.chart(made, grid, finding, key="heat")

    axes = speedup_tables.size_axes(cells, work)
    if axes:
        axis = view.choice("Size", sorted(axes, key=lambda name: -axes[name]), key="axis", kind="segments")
        points = speedup_tables.size_points(cells, failed, work, axis, precision)
        if len(points):
            finding = speedup_tables.size_finding(points, axis)
            made = speedup.size_curve(
                points,
                speedup_tables.AXIS_NAMES[axis],
                finding,
                speedup_tables.size_conditions(points, work, axis),
                show.mode(),
            )
            show.chart(made, speedup_tables.size_table(points, axis), finding, key="curve")
elif not len(cells) and origin == "reported":
    show.empty(
        "Nothing is measured here yet.",
        "The quick sweep takes about a minute, also without a GPU.",
        "Sweep",
        "Measure this machine",
    )
