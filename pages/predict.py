"""Predict: a measured workload on a GPU or in a precision that nobody measured, with its band and back-test."""

from functools import partial
from typing import Any

import streamlit as st

from core import units
from core.answers import predict as answers
from core.answers.json_values import records
from core.answers.selection import Filters
from core.charts import gap, predict
from core.charts.tables import predict as predict_tables
from core.gpus import catalogue
from core.records import PRECISIONS
from pages.parts import choose, shell, show, stored, view

shell.start("Predict")


@st.cache_data(max_entries=40, show_spinner="Predicting")
def predicted(data_version: int, source: str, target: str, filters: Filters, price: float | None) -> dict[str, Any]:
    return answers.predict(stored.store(), source, target, filters, price_per_hour=price)


cells = stored.measured()
timed = cells[(cells["device_type"] == "cuda") & cells["has_ops"].astype(bool)] if len(cells) else cells
if not len(timed):
    show.empty(
        "No GPU run with the times of its operations is stored yet, so there is nothing to predict from.",
        "Measure a GPU, or bring a run file that was made with `--ops all`.",
        "Data",
        "Bring a run file",
    )
    st.stop()

# Choose: what was measured, the card that is not here, a price.
cards = catalogue()
bar = st.columns([4, 2, 4, 2])
with bar[0]:
    first = answers.source_keys(records(timed))[0]
    source = choose.side("Measured on", stored.runs(), timed, "source", first)
with bar[1]:
    precisions = [name for name in PRECISIONS if name in set(timed["precision"])]
    precision = view.choice("Precision", precisions, key="precision", default="fp32")
with bar[2]:
    target = view.choice("Predict for", list(cards), key="target", default="t4", show=lambda key: cards[key].name)
with bar[3]:
    typed = view.text("Price per hour", "", key="price", placeholder="none", help="Of the card, in your currency.")
try:
    price = float(typed.replace(",", ".")) if typed.strip() else None
except ValueError:
    price = None
    show.note(f'The price "{typed}" is no number; none is used.')

# Load.
answer = show.asked(predicted, stored.version(), source, target, Filters(precision=(precision,)), price)
if answer is None:
    st.stop()

# One sentence, few numbers.
st.badge("predicted", icon=":material/online_prediction:", color="violet")
show.sentence(answer["headline"])
memory, totals = answer["memory"], answer["totals"]
numbers = st.columns(5)
unit = units.time_unit([answer["predicted_ms"], answer["low_ms"], answer["high_ms"]])
numbers[0].metric(
    "Predicted time",
    units.time_ms(answer["predicted_ms"], unit),
    delta=units.time_interval_ms(answer["low_ms"], answer["high_ms"], unit),
    delta_color="off",
    delta_arrow="off",
    help="95 % band from the back-test's residuals.",
)
numbers[1].metric("Against the source", units.ratio(answer["ratio"]), help="Predicted over measured time.")
numbers[2].metric(
    "Memory",
    "unknown" if memory["fits"] is None else "fits" if memory["fits"] else "does not fit",
    delta=None if memory["fits"] is None else f"{units.bytes_size(memory['peak_bytes'])} needed",
    delta_color="off",
    delta_arrow="off",
    help="Peak of the source's run against the card's memory less what the driver takes.",
)
numbers[3].metric(
    "Waits for the host",
    units.percent(totals["host_bound_share"]),
    help="Share of the time in operations shorter than the time between two launches of the source's host.",
)
if answer["price"]:
    numbers[4].metric("Price per clip", units.significant(answer["price"]["per_clip"]))

# What would change it, and beside it how wrong such predictions were.
options, test = st.columns([6, 5], gap="large")
with options:
    finding = predict_tables.option_finding(answer)
    show.chart(
        predict.options_chart,
        predict_tables.option_rows(answer),
        answer["target"]["gpu_key"],
        finding,
        "hollow points are predicted, not measured; whiskers are 95 % bands",
        table=partial(predict_tables.option_table, answer),
        alt=finding,
        key="options",
    )
with test:
    finding = predict_tables.back_test_finding(answer)
    show.chart(
        predict.back_test_scatter,
        predict_tables.back_test_rows(answer["target"]["situation"]),
        finding,
        predict_tables.back_test_conditions(answer),
        table=partial(predict_tables.back_test_table, answer),
        alt=finding,
        key="backtest",
        table_label="Back-test of every situation and class",
    )

# Where the time goes.
if totals["by_stage"]:
    finding = predict_tables.stage_finding(answer)
    show.chart(
        gap.stage_chart,
        predict_tables.stage_rows(answer),
        *predict_tables.side_names(answer),
        finding,
        "kernel time of one forward pass; pale or hollow measured, full predicted; at the right their ratio",
        table=partial(predict_tables.stage_rows, answer),
        alt=finding,
        key="stages",
    )
with st.expander("Operations", key="ops", on_change="rerun", type="compact") as box:
    if box.open:
        show.dataframe(predict_tables.op_table(answer), alt="Operations with measured and predicted time")
with st.expander("What this rests on", key="rests", on_change="rerun", type="compact") as box:
    if box.open:
        for assumption in answer["assumptions"]:
            st.text(f"- {assumption}")
        show.note(answer["backtest"]["source"])
