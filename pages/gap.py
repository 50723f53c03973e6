"""Gap: two selections, the verdict on their ratio, and where the time goes."""

from functools import partial

import streamlit as st

from core import units
from core.answers import sentences
from core.answers.review import Question
from core.answers.selection import Filters
from core.charts import gap
from core.charts.tables import gap as gap_tables
from core.records import PRECISIONS
from pages.parts import choose, pin, shell, show, stored, view
from pages.parts.choose import SAME

shell.start("Gap")

cells = stored.measured()
if not len(cells):
    show.empty(
        "Nothing is measured here yet, so there is no gap to explain.",
        "Measure this machine, or bring a run file. Two numbers from elsewhere are explained on the Overview.",
        "Sweep",
        "Measure this machine",
    )
    st.stop()

# Choose: two sides, each a GPU type or a run, each with a precision; then the work.
start = stored.kept(gap_tables.opening_sides)
bar = st.columns([4, 2, 4, 2])
with bar[0]:
    baseline = choose.side("Baseline", stored.runs(), cells, "baseline", choose.selector(*start["baseline"]))
with bar[1]:
    baseline_precision = view.choice(
        "Precision of baseline", [SAME, *PRECISIONS], key="baseline_precision", default=start["baseline_precision"]
    )
with bar[2]:
    target = choose.side("Target", stored.runs(), cells, "target", choose.selector(*start["target"]))
with bar[3]:
    target_precision = view.choice(
        "Precision of target", [SAME, *PRECISIONS], key="target_precision", default=start["target_precision"]
    )


def with_precision(head: str, precision: str) -> str:
    return head if precision == SAME else f"{head},precision={precision}"


def show_cause(cause: dict[str, str]) -> None:
    """One cause: grade, what it is and how much it may be, fix, and the command that decides."""
    with st.container(border=True, gap="xxsmall"):
        badge = {"proved": "green", "observed": "blue", "possible": "gray"}[cause["evidence"]]
        title = f"**{show.plain(cause['cause'])}**: {show.plain(cause['size'])}"
        st.markdown(f":{badge}-badge[{cause['grade']}] {title}", help=show.plain(cause["detail"]))
        fix, measurement = show.plain(f"Fix: {cause['fix']}"), show.plain(cause["measurement"])
        st.markdown(f":small[{fix} {measurement}: `{cause['command']}`]")


sides = with_precision(baseline, baseline_precision), with_precision(target, target_precision)
answer = show.asked(stored.explained, *sides, Filters())
if answer is None:
    st.stop()
works, filters = gap_tables.other_works(answer), Filters()
if len(works) > 1:
    picked = view.choice("Work in common", list(works), key="work")
    if picked != next(iter(works)):
        filters = gap_tables.work_filters(works[picked])
        answer = stored.explained(*sides, filters)
pin.this_view("Gap", Question("explain", sides, filters), [answer])

# One sentence, few numbers.
show.sentence(answer["headline"], verdict=answer["verdict"])
if answer["conditions"]:
    show.note(answer["conditions"])
ratio = answer["measured_ratio"]
if ratio["value"] is None:
    show.dataframe(gap_tables.reasons_table(answer), alt="Why the two sides cannot be compared")
    show.note(f"Choose other sides or precisions above; {SAME} takes what both sides have in common.")
    st.stop()
# The ratio as a product, beside it the first causes: fix and deciding command with each.
steps, causes = st.columns(2, gap="medium")
with steps:
    finding = gap_tables.factor_finding(answer)
    show.chart(
        gap.factor_waterfall,
        gap_tables.factor_steps(answer),
        ratio["value"],
        answer["verdict"],
        finding,
        gap_tables.factor_conditions(answer),
        table=partial(gap_tables.factor_table, answer),
        alt=finding,
        key="factors",
        table_label="Factors with their sources",
    )
with causes, st.container(gap="xsmall"):
    top = gap_tables.top_findings(answer)
    for cause in top:
        show_cause(cause)
    if not top:
        show.note(gap_tables.no_finding(answer))
    elif len(answer["findings"]) > len(top):
        label = f"All {len(answer['findings'])} causes"
        with st.expander(label, key="causes", on_change="rerun", type="compact") as box:
            if box.open:
                show.dataframe(gap_tables.finding_table(answer), alt="All causes with evidence and fix")

# Theory against measured, then where the time goes.
expected, norm = answer["expected"], answer["norm"] or {}
numbers = st.columns(5)
numbers[0].metric(
    "Measured ratio",
    units.ratio(ratio["value"]),
    delta=units.ratio_interval(ratio["low"], ratio["high"]),
    delta_color="off",
    delta_arrow="off",
    help=f"95 % interval, {ratio['interval'] or 'none'}.",
)
known = [
    ("Memory bandwidth", expected["bandwidth"], "Data sheets, target over baseline."),
    ("Arithmetic", expected["executed_precision"], "Data sheets: the peaks that the two precisions reach."),
    (
        "Roofline",
        expected["roofline"],
        "Least times of all stages or operations, from data sheets, baseline over target.",
    ),
    (
        "Healthy operations",
        norm.get("median"),
        "Median of FP32 operations timed on these two chips, weighted by this workload's time.",
    ),
]
for column, (name, value, help_text) in zip(numbers[1:], [row for row in known if row[1] is not None], strict=False):
    column.metric(name, units.ratio(value), help=help_text)
rows = gap_tables.theory_rows(answer)
if len(rows):
    finding = gap_tables.theory_finding(answer)
    show.chart(
        gap.theory_chart,
        rows,
        ratio["value"],
        ratio["low"],
        ratio["high"],
        answer["verdict"],
        finding,
        gap_tables.theory_conditions(answer),
        table=partial(gap_tables.readings_table, answer),
        alt=finding,
        key="theory",
        table_label="Readings with their sources",
    )
if answer["stages"]:
    finding = gap_tables.stage_finding(answer)
    show.chart(
        gap.stage_chart,
        gap_tables.stage_rows(answer),
        *gap_tables.side_names(answer),
        finding,
        gap_tables.stage_conditions(answer),
        table=partial(gap_tables.stage_table, answer),
        alt=finding,
        key="stages",
    )

# Detail, made when opened.
with st.expander(gap_tables.op_label(answer), key="ops", on_change="rerun", type="compact") as box:
    if box.open:
        show.note(gap_tables.op_note(answer))
    if box.open and len(gap_tables.op_steps(answer)):
        finding = gap_tables.op_finding(answer)
        show.chart(
            gap.lost_time,
            gap_tables.op_steps(answer),
            finding,
            "steps from zero to the whole difference; coloured by stage",
            table=partial(gap_tables.op_steps, answer),
            alt=finding,
            key="lost",
        )
    if box.open and answer["op_diff"]:
        formats = {name: st.column_config.NumberColumn(format="%.3g") for name in gap_tables.OP_NUMBERS}
        show.dataframe(gap_tables.op_table(answer), alt="Operations of both sides", column_config=formats)
with st.expander(gap_tables.ladder_label(answer), key="ladder", on_change="rerun", type="compact") as box:
    if box.open:
        if answer["ladder"]:
            show.dataframe(gap_tables.ladder_table(answer), alt="Ablations of this work")
        if answer["microscope"]:
            show.dataframe(gap_tables.trial_table(answer), alt="Operations tried in another way")
        if not answer["ladder"] and not answer["microscope"]:
            show.note("No board measured this work in two settings, or an operation of it alone.")
            st.code("python -m core run --preset founding", language="bash")
with st.expander("Environment of both runs", key="environment", on_change="rerun", type="compact") as box:
    if box.open:
        first, second = (answer[side]["run_id"] for side in ("baseline", "target"))
        told = show.asked(stored.environment_diff, first, second) if first != second else None
        if told is not None:
            show.note(told["headline"])
            show.dataframe(gap_tables.difference_table(told), alt="What differs and whether it can matter")
        show.dataframe(gap_tables.environment_table(answer), alt="Environment of both runs, differences first")
with st.expander("What this rests on", key="rests", on_change="rerun", type="compact") as box:
    if box.open:
        st.text(sentences.meaning(answer["verdict"], answer["verdict_reason"]))
        for assumption in answer["assumptions"]:
            st.text(f"- {assumption}")
