"""GPUs: the catalogue with the source of each value, and what others measured."""

from functools import partial

import pandas as pd
import streamlit as st

from core import units
from core.answers.catalogue import all_specs, specs
from core.charts import gpus
from core.charts.tables import cards as cards_tables
from core.gpus import catalogue
from pages.parts import shell, show, view

shell.start("GPUs")

# Choose.
cards = catalogue()
key = view.choice("Card", list(cards), key="gpu", default="h200-sxm-141gb", show=lambda key: cards[key].name)

# Load.
card = specs(key)
ceilings = cards_tables.ceiling_rows(card)
drawn = ceilings.dropna(subset=["share"])

# One sentence, few numbers, one picture.
show.sentence(card["headline"])
peaks = {row["precision"]: row["value"] for row in card["peaks"]}
gpu = cards[key]
numbers = st.columns(6)
numbers[0].metric("Bandwidth, GB/s", units.significant(gpu.memory_bandwidth_gb_s))
numbers[1].metric("FP32, TFLOP/s", units.significant(peaks["fp32"]))
numbers[2].metric("TF32, TFLOP/s", units.significant(peaks["tf32"]), help="Dense, without structured sparsity.")
numbers[3].metric("FP16, TFLOP/s", units.significant(peaks["fp16"]), help="Tensor cores, dense, accumulating in FP32.")
numbers[4].metric("Memory, GB", units.significant(gpu.memory_gb))
numbers[5].metric("Power, W", units.significant(gpu.tdp_w))

if len(drawn):
    finding = cards_tables.ceiling_finding(card, ceilings)
    show.chart(
        gpus.ceiling_chart,
        drawn,
        key,
        finding,
        "public measurements by others, each against the printed figure it belongs to",
        table=partial(ceilings.drop, columns="share"),
        alt=finding,
        key="ceilings",
        table_label="Measurements with their sources",
    )
else:
    show.empty(
        f"Nobody's measured ceilings of the {card['name']} are in the catalogue.",
        "Its data sheet is below; a sweep on this card measures what it reaches.",
    )

st.subheader("Data sheet", anchor=False)
if gpu.notes:
    show.note(gpu.notes)
show.dataframe(cards_tables.spec_values(card), alt=f"Data sheet values of the {card['name']} with their sources")

everything = all_specs()
st.subheader("All cards", anchor=False)
show.note(everything["headline"])
config = {
    "name": st.column_config.TextColumn("Card", pinned=True, width="medium"),
    "architecture": "Architecture",
    "launch": "Launch",
    "compute_capability": "Capability",
    "sm_count": "SMs",
    "memory_gb": st.column_config.NumberColumn("Memory, GB", format="%g"),
    "memory_bandwidth_gb_s": st.column_config.NumberColumn("Bandwidth, GB/s", format="%g"),
    "l2_cache_mb": st.column_config.NumberColumn("L2, MB", format="%g"),
    "tdp_w": st.column_config.NumberColumn("Power, W", format="%g"),
    "fp32_tflops": st.column_config.NumberColumn("FP32, TFLOP/s", format="%.4g"),
    "tf32_tflops": st.column_config.NumberColumn("TF32, TFLOP/s", format="%.4g"),
    "fp16_tflops": st.column_config.NumberColumn("FP16, TFLOP/s", format="%.4g"),
    "bf16_tflops": st.column_config.NumberColumn("BF16, TFLOP/s", format="%.4g"),
    "measured_ceilings": "Measured ceilings",
    "key": "Key",
}
show.dataframe(
    pd.DataFrame(everything["gpus"]).sort_values("launch", ascending=False),
    alt="All cards of the catalogue",
    column_config=config,
    column_order=[*[c for c in config if c != "key"], "key"],
)
