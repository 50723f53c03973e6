"""The Data page's part for files of other programs: questions as a form, what was understood, what belongs to a run."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.answers import imports as answers
from core.charts.tables import imports as tables
from core.charts.tables import stored as stored_tables
from core.store import uploads
from pages.parts import choose, show, stored

ADDED = "added_runs"
NO_BASELINE = "none"


def given_answers(upload_id: str) -> dict[str, str] | None:
    """What a person answered for this file; None as long as nobody did."""
    return st.session_state.get(f"answers_{upload_id}")


def wants_saved(upload_id: str) -> bool:
    """Whether the answers for the last such table may be used."""
    return not st.session_state.get(f"anew_{upload_id}", False)


def show_import(found: uploads.Preview) -> None:
    """What was understood of one file, its questions, and what it would bring in."""
    about = found.imported
    assert about is not None
    for sentence in about.said:
        show.note(sentence)
    if about.sample and found.open_questions:
        show.note("Its first rows:")
        show.dataframe(tables.sample_table(about), alt="The first rows of the file")
    settled = tables.settled_sentence(about)
    if settled and (about.answers or not found.open_questions):
        show.note(settled)
    if about.answers:
        st.button(
            "Answer anew",
            key=f"again_{found.upload_id}",
            on_click=_answer_anew,
            args=[found.upload_id],
            help="Ask every question again, and do not take the answers for the last table with these columns.",
        )
    if about.questions and about.facts_for is None:
        _form(found, about)
    if about.tasks and not found.open_questions:
        show.dataframe(tables.task_table(about), alt="Works in the file, as they were understood")
    if found.problems:
        show.note(tables.left_out_words(found))
        show.dataframe(stored_tables.problem_table(found), alt="Parts of the file that cannot be used, by line")


def _answer_anew(upload_id: str) -> None:
    st.session_state[f"anew_{upload_id}"] = True
    st.session_state.pop(f"answers_{upload_id}", None)


def _form(found: uploads.Preview, about: Any) -> None:
    """One field per question; what has a default is folded away."""
    needed = [question for question in about.questions if question.default is None]
    others = [question for question in about.questions if question.default is not None]
    with st.form(f"form_{found.upload_id}", border=False):
        values = {question.key: _field(found.upload_id, question) for question in needed}
        if others:
            with st.expander(f"Assumed, unless you say otherwise ({len(others)})", type="compact"):
                values |= {question.key: _field(found.upload_id, question) for question in others}
        if st.form_submit_button("Read it with these answers", icon=":material/check:"):
            kept = {key: value for key, value in values.items() if value}
            st.session_state[f"answers_{found.upload_id}"] = {**about.answers, **kept}
            st.rerun()


def _field(upload_id: str, question: Any) -> str | None:
    """A widget for one question; the answer as text, None where there is none."""
    name = show.plain(tables.label(question))
    key, why = f"q_{question.key}_{upload_id}", show.plain(question.text)
    choices = list(question.choices)
    if question.many:
        chosen = st.multiselect(name, choices, key=key, help=why,
                                default=[question.default] if question.default in choices else None)
        return "; ".join(chosen) or None
    if not choices:
        return st.text_input(name, question.default or "", key=key, help=why, max_chars=300) or None
    if question.default is not None and question.default not in choices:
        choices = [question.default, *choices]
    start = choices.index(question.default) if question.default is not None else None
    return st.selectbox(name, choices, index=start, key=key, help=why, accept_new_options=question.free,
                        placeholder="choose, or type a name" if question.free else "choose")


# --- what it would do, against whom ----------------------------------------------------------------------------------


def baseline() -> tuple[str, str]:
    """(SEL, label) of what new files are set against; a GPU type that has cells."""
    names = {choose.selector(gpu["label"], gpu["gpu_key"]): gpu["label"] for gpu in stored.coverage()["gpus"]}
    chosen = st.selectbox("Set it against", [NO_BASELINE, *names], index=1 if names else 0, key="import_baseline",
                          format_func=lambda option: names.get(option, "nothing"),
                          help="How many cells of the files have a partner on this GPU type.")
    return chosen, names.get(chosen, "")


@st.cache_data(max_entries=40, show_spinner=False)
def _outlook(data_version: int, upload_id: str, lines_id: int, against: str, _data: bytes, _found: Any) -> Any:
    return answers.outlook(stored.store(), _data, _found, None if against == NO_BASELINE else against)


def outlook(data: bytes, found: uploads.Preview, against: str) -> None:
    """What would count, what would be held in quarantine, and how many cells match the baseline."""
    told = _outlook(stored.version(), found.upload_id, hash(found.lines_text), against, data, found)
    show.note(told["headline"])
    if told["held"]:
        for item in told["held"][:5]:
            st.warning(show.plain(f"Would be held: {item['sentence']} {item['means']}"), icon=":material/lock:")
        if len(told["held"]) > 5:
            show.note(f"{len(told['held']) - 5} more of this kind.")


def remember(found: uploads.Preview, against: str) -> None:
    """Keep in mind what was just added, for the way on to it."""
    runs = [(run.run_id, run.gpu_label or "") for run in found.runs]
    st.session_state[ADDED] = [*(st.session_state.get(ADDED) or [])[-4:], (found.name, runs[:3], against)]


def added() -> None:
    """The way from what was just added to its comparison, once it is in."""
    here = set(stored.runs()["run_id"])
    for name, runs, against in st.session_state.get(ADDED) or []:
        for run_id, label in runs:
            if run_id in here and against != NO_BASELINE:
                sides = {
                    "baseline": against,
                    "target": choose.run_name(run_id, label),
                    "baseline_precision": choose.SAME,
                    "target_precision": choose.SAME,
                }
                show.page_link("Gap", show.plain(f"See {name} ({label or run_id}) against {against}"), sides)


# --- what else is known of a run -------------------------------------------------------------------------------------


@st.cache_data(max_entries=20, show_spinner=False)
def _known(data_version: int, run_id: str) -> tuple[Any, Any]:
    store = stored.store()
    return answers.log(store, run_id), answers.attached(store, run_id)


def known_besides(run_id: str) -> None:
    """What a log says, and which logs and profiles belong to this run."""
    own, others = _known(stored.version(), run_id)
    if own is not None:
        show.note(own["headline"])
        show.dataframe(tables.phase_table(own["phases"]), alt="What the board did, by reading of the log")
    for row in others["logs"]:
        show.note(f"While it ran, by {row['file']}: {row['headline']}")
        show.dataframe(tables.phase_table(row["phases"]), alt=f"What the board did, by {row['file']}")
    for row in others["profiles"]:
        show.note(row["headline"])
