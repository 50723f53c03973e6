"""Overview: two numbers and what is normal about them; what is measured here."""
import streamlit as st

from core import units
from core.answers import sentences
from core.answers.two import explain_two
from core.charts import gap, tables
from core.gpus import PRECISIONS
from pages.parts import shell, show, view

shell.start("Overview")

# Choose: two figures as people report them.
left, right, third = st.columns([3, 3, 2])
with left:
    baseline = view.text("Baseline: GPU = figure", "Tesla T4=85s", key="baseline",
                         help="A GPU and its time or rate: 85s, 0.5 s, 12 FPS, 3.2 s/frame, 7.4 TFLOPS.")
with right:
    target = view.text("Target: GPU = figure", "NVIDIA A100-SXM4-40GB=0.5s", key="target")
with third:
    precision = view.choice("Precision, as stated", ["fp32", "not stated", *PRECISIONS[1:]], key="precision")

# Ask.
answer = show.asked(lambda: explain_two(baseline, target, precision=None if precision == "not stated" else precision))

if answer is not None:
    show.sentence(answer["headline"], verdict=answer["verdict"])
    ratio = answer["measured_ratio"]["value"]
    if ratio is not None:
        numbers, picture = st.columns([3, 9], gap="medium")
        with numbers:
            expected = answer["expected"]
            st.metric("Reported ratio", units.ratio(ratio), help="Baseline time over target time, as reported.")
            st.metric("Memory bandwidth", units.ratio(expected["bandwidth"]), help="Data sheets, target over baseline.")
            st.metric("FP32 arithmetic", units.ratio(expected["fp32"]), help="Data sheets, target over baseline.")
            st.metric("Largest healthy operation", units.ratio((answer["norm"] or {}).get("max")),
                      help="Of the operations timed on this pair of cards, the one with the largest ratio.")
        with picture:
            made = gap.norm_strip(tables.norm_bins(answer), tables.norm_values(answer), tables.theory_lines(answer), ratio,
                                  answer["verdict"], tables.norm_finding(answer), tables.norm_conditions(answer), show.mode())
            show.chart(made, tables.norm_table(answer), tables.norm_alt(answer), key="norm")
    with st.expander("Readings of the precision, sources and assumptions", key="readings", on_change="rerun",
                     type="compact") as box:
        if box.open:
            show.dataframe(tables.readings_table(answer), alt="Theory readings with their sources")
            st.text(sentences.VERDICT_MEANINGS[answer["verdict"]])
            for assumption in answer["assumptions"]:
                st.text(f"- {assumption}")
