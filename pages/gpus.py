"""GPUs: the catalogue with the source of each value, what was measured, rooflines, cards that people add."""

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from core import units
from core.answers import card as card_answers
from core.answers.catalogue import all_specs, specs
from core.answers.terms import help_for
from core.charts import gpus
from core.charts.tables import cards as cards_tables
from core.gpus import catalogue
from core.gpus.added import NUMBERS, is_added
from core.gpus.claims import claims
from core.store.cards import add_card, remove_card
from pages.parts import access, shell, show, stored, view

FORM = {
    "name": ("Name", "RTX 9090"),
    "nvml_names": ("Name of the driver", "NVIDIA GeForce RTX 9090"),
    "compute_capability": ("Compute capability", "12.0"),
    "memory_bandwidth_gb_s": ("Bandwidth, GB/s", "1792"),
    "fp32_tflops": ("FP32, TFLOP/s", "104.8"),
    "memory_gb": ("Memory, GB", "32"),
    "tf32_tflops": ("TF32, TFLOP/s", "not stated"),
    "fp16_tflops": ("FP16, TFLOP/s", "not stated"),
    "bf16_tflops": ("BF16, TFLOP/s", "not stated"),
    "sm_count": ("SMs", "not stated"),
    "l2_cache_mb": ("L2, MB", "not stated"),
    "tdp_w": ("Power, W", "not stated"),
    "source": ("Source", "name of the data sheet"),
}
HELP = {
    "nvml_names": "As `nvidia-smi -L` prints it; several with ; between. Runs under this name count as this card.",
    "compute_capability": "`nvidia-smi --query-gpu=compute_cap --format=csv` tells it.",
    "tf32_tflops": "Dense, without structured sparsity.",
    "fp16_tflops": "Tensor cores, dense, accumulating in FP32.",
    "bf16_tflops": "Dense, without structured sparsity.",
}

shell.start("GPUs")


def add() -> None:
    """Put what the form holds into the journal, and show the new card."""
    given = {name: st.session_state.get(f"new_{name}", "").strip() for name in FORM}
    card = show.asked(add_card, stored.runs_folder(), given)
    if card is not None:
        st.session_state["gpu"] = card.key
        for name in FORM:
            st.session_state[f"new_{name}"] = ""


def remove(key: str) -> None:
    show.asked(remove_card, stored.runs_folder(), key)


@st.cache_data(max_entries=20, show_spinner=False)
def own_of(key: str, data_version: int) -> dict[str, Any]:
    return card_answers.own_ceilings(stored.store(), key)


@st.cache_data(max_entries=20, show_spinner=False)
def points_of(run_id: str, seq: int, data_version: int) -> dict[str, Any]:
    return card_answers.roofline_points(stored.store(), run_id, seq)


def one_card(key: str) -> None:
    """One sentence, few numbers, one picture: its ceilings, else its data sheet alone."""
    answer, gpu = specs(key), catalogue()[key]
    show.sentence(answer["headline"])
    peaks = {row["precision"]: row["value"] for row in answer["peaks"]}
    numbers = st.columns(6)
    bandwidth_help, peak_help = help_for("memory bandwidth"), help_for("arithmetic peak")
    numbers[0].metric("Bandwidth, GB/s", units.significant(gpu.memory_bandwidth_gb_s), help=bandwidth_help)
    numbers[1].metric("FP32, TFLOP/s", units.significant(peaks["fp32"]), help=peak_help)
    tf32 = units.significant(peaks["tf32"]) if gpu.supports_tf32 else "none"
    numbers[2].metric("TF32, TFLOP/s", tf32, help="Dense, without structured sparsity; from compute capability 8.0 on.")
    numbers[3].metric(
        "FP16, TFLOP/s", units.significant(peaks["fp16"]), help="Tensor cores, dense, accumulating in FP32."
    )
    numbers[4].metric("Memory, GB", units.significant(gpu.memory_gb))
    numbers[5].metric("Power, W", units.significant(gpu.tdp_w))

    public = cards_tables.ceiling_rows(answer)
    own = own_of(key, stored.version())
    drawn = cards_tables.both_ceilings(own, public)
    if len(drawn):
        finding = own["headline"] if own["rows"] else cards_tables.ceiling_finding(answer, public)
        show.chart(
            gpus.ceiling_chart,
            drawn,
            key,
            finding,
            cards_tables.ceiling_conditions(own),
            table=partial(public.drop, columns="share"),
            alt=finding,
            key="ceilings",
            table_label="Measurements of others with their sources",
        )
    else:
        show.empty(
            f"Nobody's measured ceilings of the {answer['name']} are in the catalogue.",
            "Its data sheet is below; `python -m core ceilings` on this card measures what it reaches.",
        )
    if own["rows"]:
        with st.expander("Everything measured here", key="own", on_change="rerun", type="compact") as box:
            if box.open:
                show.dataframe(cards_tables.own_table(own), alt=own["headline"])
    curve = cards_tables.working_set_rows(own)
    if len(curve):
        finding = cards_tables.working_set_finding(answer["name"], curve, own["l2_bytes"])
        show.chart(
            gpus.working_set_curve,
            curve,
            key,
            own["l2_bytes"],
            gpu.memory_bandwidth_gb_s,
            finding,
            "measured by the newest run stored here; bytes read and written; the working set is both buffers",
            table=lambda: curve,
            alt=finding,
            key="working_set",
        )
    under_the_roof(key)

    st.subheader("Data sheet", anchor=False)
    if gpu.notes:
        show.note(gpu.notes)
    show.dataframe(cards_tables.spec_values(answer), alt=f"Data sheet of the {answer['name']}, with sources")
    if is_added(gpu):
        st.button(
            "Take this card away again",
            icon=":material/delete:",
            on_click=remove,
            args=[key],
            disabled=access.locked(),
            key="remove",
        )


def under_the_roof(key: str) -> None:
    """Stages and operations of one measured cell under this card's roofline."""
    cells = stored.kept(cards_tables.cells_of_card, key)
    if not len(cells):
        return
    st.subheader("Roofline", anchor=False, help=help_for("floor", "arithmetic intensity"))
    name = view.choice("Cell", list(cells["name"]), key="cell", help=help_for("cell"))
    chosen = cells[cells["name"] == name].iloc[0]
    answer = points_of(chosen["run_id"], int(chosen["seq"]), stored.version())
    if not answer["points"]:
        show.note(answer["headline"])
        return
    show.chart(
        gpus.roofline_chart,
        cards_tables.roofline_rows(answer),
        answer["roofs"],
        answer["headline"],
        cards_tables.roofline_conditions(answer, name),
        table=partial(cards_tables.roofline_table, answer),
        alt=answer["headline"],
        key="roofline",
    )


def often_said(key: str) -> None:
    """Claims in circulation, those about the chosen card first."""
    found = claims()
    own = [claim for claim in found if claim.gpu_key == key]
    st.subheader("Often said, and wrong", anchor=False)
    if own:
        show.dataframe(cards_tables.claim_table(own), alt=f"Claims about the {catalogue()[key].name}")
    rest = [claim for claim in found if claim.gpu_key != key]
    label = "About other cards" if own else "About the T4, V100, A100 and H100"
    with st.expander(label, key="claims", on_change="rerun", type="compact") as box:
        if box.open:
            show.dataframe(cards_tables.claim_table(rest), alt="Claims that are often made, and what holds")


def all_cards() -> None:
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
        "trust": "Trust",
        "measured_ceilings": "Measured ceilings",
        "key": "Key",
    }
    show.dataframe(
        pd.DataFrame(everything["gpus"]).sort_values("launch", ascending=False, na_position="first"),
        alt="All cards of the catalogue",
        column_config=config,
        column_order=[*[c for c in config if c != "key"], "key"],
    )


def add_a_card() -> None:
    """A form; what it asks for is what two numbers, theory and predictions need."""
    with (
        st.expander("Add a card", icon=":material/add:", type="compact"),
        st.form("new_card", border=False, enter_to_submit=False),
    ):
        show.note(
            "For a card that is not in the list. It then counts wherever a shipped one does, with your source beside "
            "each value, on this machine only; it can be taken away again."
        )
        fields = list(FORM)
        for row in (fields[:3], fields[3:6], fields[6:9], fields[9:12], fields[12:]):
            for column, name in zip(st.columns(3 if len(row) > 1 else 1), row, strict=True):
                label, example = FORM[name]
                needed = name not in NUMBERS or NUMBERS[name][4]
                column.text_input(
                    label if needed and name != "nvml_names" else f"{label} (if known)",
                    key=f"new_{name}",
                    placeholder=example,
                    help=HELP.get(name),
                    max_chars=300,
                )
        st.form_submit_button("Add this card", on_click=add, disabled=access.locked())


cards = catalogue()
key = view.choice("Card", list(cards), key="gpu", default="h200-sxm-141gb", show=lambda key: cards[key].name)
one_card(key)
often_said(key)
all_cards()
add_a_card()
