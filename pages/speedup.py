"""Speedup: GPU types on the same work, with intervals and theory; precision and size beside; one device in detail."""

from functools import partial
from typing import Any

import streamlit as st

from core.answers.review import Question
from core.charts import floors, ladder, samples, speedup, value
from core.charts.tables import cells as cells_tables
from core.charts.tables import one_device
from core.charts.tables import reported as reported_tables
from core.charts.tables import speedup as speedup_tables
from core.charts.theme import short_name
from core.records import PRECISIONS
from pages.parts import choose, pin, results, shell, show, stored, view

DETAILS = {
    "samples": "Samples",
    "theory": "Against theory",
    "ladder": "Handicap ladder",
    "drift": "Drift",
    "value": "Energy and price",
}

shell.start("Speedup")

# Choose: measured works that GPU types share, or what others report.
cells, failed = stored.measured(), stored.failed()
shared = len(cells) > 0 and stored.kept(cells_tables.works)["cards"].max() > 1
first_bar = st.columns([2.4, 2.4, 2.4, 2.8, 1.4], vertical_alignment="bottom")
with first_bar[0]:
    origin = view.choice(
        "Origin",
        ["measured", "reported"] if len(cells) else ["reported"],
        key="origin",
        default="measured" if shared else "reported",
        kind="segments",
    )


def show_reported(pairs: list[Any]) -> None:
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


if origin == "reported":
    pairs = stored.reported_pairs()
    if not shared and pairs:
        show.note(
            "Two GPU types with the same work are not measured here yet, so this page opens on what others report; "
            "one GPU type, and a CPU beside it, are under measured. A run file from a second card, on the Data page, "
            "changes that."
        )
    if pairs:
        show_reported(pairs)
    if not len(cells):
        show.empty(
            "Nothing is measured here yet.",
            "The quick sweep takes about a minute, also without a GPU.",
            "Sweep",
            "Measure this machine",
        )
    shell.done()

# Choose: what the bars stand for, the work, the precision.
with first_bar[1]:
    by = view.choice("Compare", speedup_tables.COMPARE_BY, key="by", show=lambda name: f"by {name}")
more = first_bar[4].popover("More", icon=":material/tune:", width="stretch")
bar = st.columns([3, 2, 2, 2, 2])
work = choose.work("cards" if shared else "devices", bar, more)
of_work = stored.kept(cells_tables.of_work, work)
same, on = of_work, None
if by in speedup_tables.WITHIN_ONE:
    labels = list(cells_tables.device_order(same)["gpu_label"])[::-1]
    with first_bar[2]:
        on = view.choice("GPU", labels, key="gpu", show=short_name)
    same = same[same["gpu_label"] == on]
precision = execution = ""
if by != "precision":
    have = set(same["precision"])
    with bar[4]:
        precision = view.choice("Precision", [name for name in PRECISIONS if name in have], key="precision")
    same = same[same["precision"] == precision]
with more:
    if by != "execution":
        ways = sorted(set(same["execution"]), key=lambda name: (name != "eager", name))
        execution = view.choice("Execution", ways, key="execution", help="How the forward pass runs.")
        same = same[same["execution"] == execution]
    equal = view.switch(
        "Hold equal work", key="equal", default=True, help="Off: times of unequal works side by side, without a ratio."
    )
groups = speedup_tables.comparable_groups(same, by)
names = list(groups["name"])
with first_bar[3 if on else 2]:
    start = "fp32" if by == "precision" and "fp32" in names else "eager" if "eager" in names else None
    baseline = view.choice("Baseline", names, key="baseline", default=start, show=short_name)
with more:
    targets = view.choices("Targets", [name for name in names if name != baseline], key="target", placeholder="all")
chosen = groups[(groups["name"] == baseline) | groups["name"].isin(targets or names)]
base = chosen[chosen["name"] == baseline].iloc[0]
filters = choose.work_filters(work, precision, execution)


def show_unequal() -> None:
    rows = stored.kept(speedup_tables.unequal_rows, work["selector"], precision or "fp32")
    if not len(rows):
        show.empty("This tracker has no time in this precision.", "Choose another precision.")
        return
    show.sentence("Different works side by side: absolute times only, since a ratio would say nothing about the cards.")
    finding = f"{work['selector']}: the largest work of each device"
    show.chart(
        speedup.time_bars,
        rows,
        finding,
        f"{precision or 'fp32'}; median of repetitions, bars p5 to p95; not the same work",
        table=partial(speedup_tables.unequal_table, rows),
        alt=finding,
        key="unequal",
    )


def show_bars() -> None:
    others = chosen[chosen["name"] != baseline]
    answers = results.compared(base["selection"], list(others["selection"]), filters)
    bars = speedup_tables.speedup_rows(answers, baseline, base["gpu_key"], list(others["name"]))
    lines = speedup_tables.speedup_theory(answers, list(others["name"]))
    if not len(bars):
        show.empty(
            f"Only the {short_name(baseline)} has this work in {precision or 'this setting'}.",
            "Choose another size or precision, or bring a run file of another device.",
            "Data",
        )
        return
    sides, names = (base["selection"], *others["selection"]), (baseline, *others["name"])
    pin.this_view("Speedup", Question("compare", sides, filters, names), answers)
    finding = speedup_tables.speedup_finding(bars, lines, baseline, by, on)
    show.sentence(finding + ".")
    show.chart(
        speedup.speedup_bars,
        bars,
        lines,
        short_name(baseline),
        speedup_tables.range_finding(bars, baseline, by),
        speedup_tables.speedup_conditions(same, bars, lines),
        table=partial(speedup_tables.speedup_table, bars),
        alt=finding,
        key="bars",
    )


if equal:
    show_bars()
    lost = cells_tables.of_work(failed, work)
    lost = lost[(lost["precision"] == precision) & ~lost["gpu_label"].isin(same["gpu_label"])]
    if len(lost):
        show.note(speedup_tables.failed_words(lost))
else:
    show_unequal()
left_out = stored.kept(speedup_tables.left_out_words, work)
if left_out:
    show.note(left_out)

# Precision and size beside it.
heat_precision = precision or (baseline if by == "precision" else "fp32")
grid = stored.kept_with_failed(speedup_tables.heat_cells, work, base["gpu_label"], heat_precision, execution)
if grid["ratio"].notna().any():
    finding = speedup_tables.heat_finding(grid)
    show.chart(
        speedup.heat_map,
        grid,
        finding,
        speedup_tables.heat_conditions(of_work, base["gpu_label"], heat_precision),
        table=partial(speedup_tables.heat_table, grid),
        alt=finding,
        key="heat",
    )
axes = stored.kept(speedup_tables.size_axes, work)
if axes:
    axis = view.choice("Size", sorted(axes, key=lambda name: -axes[name]), key="axis", kind="segments")
    points = stored.kept_with_failed(speedup_tables.size_points, work, axis, heat_precision, execution)
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


# In detail: one part at a time, made when chosen.
st.subheader("In detail", anchor=False)
detail_bar = st.columns([8, 4], vertical_alignment="bottom")
with detail_bar[0]:
    part = view.optional("Show", list(DETAILS), key="detail", show=DETAILS.__getitem__)
if part is None:
    shell.done()
device = names[-1]
if part != "value":
    with detail_bar[1]:
        device = view.choice("Of", names, key="device", default=names[-1], show=short_name)
inside = groups[groups["name"] == device].iloc[0]
work_words = cells_tables.common_words(of_work).removesuffix(f", {precision}")


def show_samples() -> None:
    answer = show.asked(results.samples, inside["selection"], filters)
    if answer is None:
        return
    finding = one_device.sample_finding(answer)
    show.chart(
        samples.sample_strip,
        answer["samples"],
        answer["gpu_key"],
        answer["median_ms"],
        finding,
        one_device.sample_conditions(answer, work_words),
        table=partial(one_device.sample_table, answer),
        alt=finding,
        key="samples",
    )


def show_floors() -> None:
    answer = show.asked(results.floors, inside["selection"], filters)
    if answer is None:
        return
    if not answer["rows"]:
        show.note(answer["headline"])
        return
    show.chart(
        floors.floor_scatter,
        one_device.floor_rows(answer),
        answer["what"],
        answer["headline"],
        one_device.floor_conditions(answer),
        table=partial(one_device.floor_table, answer),
        alt=answer["headline"],
        key="floors",
    )


def show_ladder() -> None:
    answer = show.asked(results.ladder, inside["selection"], choose.work_filters(work))
    if answer is None:
        return
    if len(answer["rungs"]) == 1:
        show.note(f"{answer['headline']} This command takes its advantages away one by one:")
        st.code("python -m core run --preset founding", language="bash")
        return
    show.chart(
        ladder.ladder_bars,
        one_device.ladder_rungs(answer),
        answer["gpu_key"],
        one_device.ladder_base(answer),
        answer["alone"],
        answer["headline"],
        one_device.ladder_conditions(answer, work_words),
        table=partial(one_device.ladder_table, answer),
        alt=answer["headline"],
        key="ladder",
    )


def show_drift() -> None:
    rows = speedup_tables.drift_rows(of_work, inside["gpu_label"])
    if not len(rows):
        show.note("FP32 and another precision of this work are not measured on this device.")
        return
    finding = speedup_tables.drift_finding(rows)
    show.chart(
        speedup.speedup_bars,
        rows,
        speedup_tables.speedup_theory([]),
        "fp32",
        finding,
        f"{short_name(inside['gpu_label'])}; {work_words}; ratio of medians; right: distance of the points from "
        "FP32's, median / p95",
        time_header="drift",
        table=partial(speedup_tables.drift_table, rows),
        alt=finding,
        key="drift",
    )


def show_value() -> None:
    answer = results.value(tuple(chosen["selection"]), filters)
    value_words = ", ".join(filter(None, [work_words, precision]))
    energy = one_device.energy_rows(answer)
    finding = one_device.amount_finding(energy, "energy")
    show.chart(
        value.amount_bars,
        energy,
        "joules per clip (one forward pass), less is better",
        finding,
        f"{value_words}; the board's energy counter while it timed; no figure comes from a power limit",
        table=partial(one_device.value_table, answer),
        alt=finding,
        key="energy",
    )
    show.note("Price per hour, in any one currency. None is shipped; what you type is kept in the journal.")
    known = results.prices()
    fields = st.columns(min(max(len(answer["rows"]), 3), 6))
    for place, row in enumerate(answer["rows"]):
        gpu = row["gpu_key"] or row["gpu"]
        key = f"price_{gpu}"
        fields[place % len(fields)].number_input(
            short_name(row["gpu"]),
            min_value=0.0,
            value=known.get(gpu),
            step=0.1,
            key=key,
            placeholder="per hour",
            on_change=results.set_price,
            args=(gpu, key),
        )
    money = one_device.money_rows(answer)
    if money["amount"].notna().any():
        finding = one_device.amount_finding(money, "price")
        show.chart(
            value.amount_bars,
            money,
            "money per 1000 clips, in the currency of the prices; less is better",
            finding,
            f"{value_words}; median time at the prices typed in above; the whole hour is used",
            table=partial(one_device.value_table, answer),
            alt=finding,
            key="money",
        )


DRAW = {"samples": show_samples, "theory": show_floors, "ladder": show_ladder, "drift": show_drift, "value": show_value}
shell.guarded(DRAW[part])()
