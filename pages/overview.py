"""Overview: two numbers and what is normal about them; what is measured here."""

from functools import partial

import streamlit as st

from core import units
from core.answers import sentences
from core.answers.overview import FOUNDING_PAIR, FOUNDING_PRECISION
from core.answers.terms import help_for
from core.answers.two import explain_two
from core.charts import gap, overview
from core.charts.tables import cells as cells_tables
from core.charts.tables import gap as gap_tables
from core.charts.tables import sweep as sweep_tables
from core.gpus import PRECISIONS
from core.store import jobs
from pages.parts import access, machine, planned, shell, show, stored, view

shell.start("Overview")

# Choose: two figures as people report them.
left, right, third = st.columns([3, 3, 2])
with left:
    baseline = view.text(
        "Baseline: GPU = figure",
        FOUNDING_PAIR[0],
        key="baseline",
        help="A GPU and its time or rate: 85s, 0.5 s, 12 FPS, 3.2 s/frame, 7.4 TFLOPS.",
    )
with right:
    target = view.text("Target: GPU = figure", FOUNDING_PAIR[1], key="target")
with third:
    precision = view.choice(
        "Precision, as stated",
        [*PRECISIONS, "not stated"],
        key="precision",
        default=FOUNDING_PRECISION,
        help=" ".join(f"{name}: {help_for(name)}" for name in ("fp32", "default", "tf32", "fp16")),
    )

# Ask.
answer = show.asked(explain_two, baseline, target, precision=None if precision == "not stated" else precision)

if answer is not None:
    show.sentence(answer["headline"], verdict=answer["verdict"])
    ratio = answer["measured_ratio"]["value"]
    if ratio is not None:
        numbers, picture = st.columns([3, 9], gap="medium")
        with numbers:
            expected = answer["expected"]
            st.metric("Reported ratio", units.ratio(ratio), help=help_for("baseline"))
            st.metric("Memory bandwidth", units.ratio(expected["bandwidth"]), help=help_for("memory bandwidth"))
            st.metric("FP32 arithmetic", units.ratio(expected["fp32"]), help=help_for("arithmetic peak"))
            if answer["norm"]:
                st.metric(
                    "Largest healthy operation",
                    units.ratio(answer["norm"]["max"]),
                    help="Healthy: single FP32 operations that others timed one by one on these two chips. This is the "
                    "one with the largest ratio.",
                )
        with picture:
            show.chart(
                gap.norm_strip,
                gap_tables.norm_bins(answer),
                gap_tables.norm_values(answer),
                gap_tables.theory_lines(answer),
                ratio,
                answer["verdict"],
                gap_tables.norm_finding(answer),
                gap_tables.norm_conditions(answer),
                table=partial(gap_tables.norm_table, answer),
                alt=gap_tables.norm_alt(answer),
                key="norm",
            )
    with st.expander(
        "Readings of the precision, sources and assumptions", key="readings", on_change="rerun", type="compact"
    ) as box:
        if box.open:
            show.dataframe(gap_tables.readings_table(answer), alt="Theory readings with their sources")
            st.text(sentences.meaning(answer["verdict"], answer["verdict_reason"]))
            for assumption in answer["assumptions"]:
                st.text(f"- {assumption}")


# What is measured here, and how to add this machine.
covered = stored.coverage()


def measure() -> None:
    """Start the quick sweep and go to where it can be watched."""
    started = show.asked(jobs.start_sweep, ["--preset", "quick"], stored.runs_folder())
    if started is not None:
        st.session_state["started"] = started


st.subheader("What is measured here", anchor=False)
button, said = st.columns([3, 9], vertical_alignment="center")
button.button(
    "Measure this machine (60 s)",
    icon=":material/play_circle:",
    on_click=measure,
    disabled=access.locked(),
    width="stretch",
)
cards = planned.gpus()
said.markdown(show.plain(sweep_tables.quick_words(cards, covered)))
if "started" in st.session_state:
    st.switch_page(shell.page_of("Sweep"), query_params={"run": st.session_state.pop("started")})

machine.checked()

cells = cells_tables.coverage_cells(covered)
if (cells["origin"] != "reported").any():
    finding = cells_tables.coverage_finding(covered)
    show.chart(
        overview.coverage_map,
        cells,
        finding,
        cells_tables.coverage_conditions(covered, cells),
        table=partial(cells_tables.coverage_table, covered),
        alt=finding,
        key="coverage",
    )
else:
    show.empty("Nothing is measured yet.", "The quick sweep takes about a minute, also without a GPU.")

ours, theirs = st.tabs(["Measured", "Reported by others"], key="rows", on_change="rerun")
if ours.open:
    with ours:
        show.dataframe(
            stored.kept(cells_tables.measured_table),
            alt="Measured cells",
            column_config={
                name: st.column_config.NumberColumn(format="%.4g") for name in ("median, ms", "p5, ms", "p95, ms")
            },
        )
if theirs.open:
    with theirs:
        show.note("Reported: figures that others published, as their sources state them. Nothing here measured them.")
        show.dataframe(cells_tables.reported_table(stored.reported()), alt="Reported figures")
