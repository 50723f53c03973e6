"""Data: files in, looked at and asked about before they count; runs listed, exported, taken back."""

from collections.abc import Callable

import streamlit as st

from core.answers import collector
from core.answers.imports import facts_by_format
from core.charts.tables import imports as import_tables
from core.charts.tables import stored as stored_tables
from core.store import quarantine, queries, uploads
from core.store.export import export_csv, export_run
from pages.parts import access, export, imports, shell, show, stored, twin, view

ROUND = "upload_round"
SHOWN = 10  # uploads and deleted runs that are listed at once; the rest is folded in

shell.start("Data")
store, folder = stored.store(), stored.runs_folder()
runs = stored.runs()

show.sentence(stored_tables.runs_sentence(runs) + ".")
status = store.status()
for problem in (*status.errors, *status.notices):
    st.warning(show.plain(problem), icon=":material/info:")


# --- in: upload, look, confirm ---


def accept(files: list[tuple[bytes, uploads.Preview]], against: str) -> None:
    """Keep the looked-at files; the ingester takes them in within a second. Then offer an empty uploader again.

    A file with bad lines is among them only when its box was ticked.
    """
    for data, found in files:
        if show.asked(uploads.accept, folder, data, found.name, found=found, good_lines_only=found.bad_lines > 0):
            imports.remember(found, against)
    st.session_state[ROUND] = st.session_state.get(ROUND, 0) + 1
    st.toast(f"{len(files)} file{'' if len(files) == 1 else 's'} kept; the runs appear below.", icon=":material/check:")


@st.cache_data(max_entries=20, show_spinner="Reading the file in a limited process")
def look(
    data: bytes,
    name: str,
    data_version: int,
    answers: dict[str, str] | None = None,
    facts: dict[str, str] | None = None,
    use_saved: bool = True,
) -> uploads.Preview:
    return uploads.preview(data, name, store, answers=answers, facts=facts, use_saved=use_saved)


imports.added()
locked = access.locked()  # then no uploader: a file sent past it to the server is never looked at
st.subheader("Add run files", anchor=False)
given = None if locked else st.file_uploader(
    "Run files, or what other programs wrote (up to 50 MB each)",
    type=["jsonl", "gz", "json", "csv", "tsv", "txt", "log", "parquet", "duckdb"],
    accept_multiple_files=True,
    key=f"upload_{st.session_state.get(ROUND, 0)}",
    help="A run file comes from `python -m core run --out FILE.jsonl` on another machine. Also read: torch.profiler "
    "traces, nsys and nvidia-smi tables, benchmark reports, any CSV or Parquet table, another results.duckdb. A report "
    "and its configuration together. Files are read in a limited process and count only after you confirm.",
)
if locked:
    show.note("Somebody who may write adds files here; what is stored can be exported below.")
ready = []
seen = [(file.getvalue(), file.name) for file in given or []]
looked = [(data, name, show.asked(look, data, name, stored.version())) for data, name in seen]
facts = facts_by_format([found for _, _, found in looked if found is not None])
against = imports.baseline()[0] if seen else imports.NO_BASELINE
for data, name, first in looked:
    if first is None:
        continue
    found = first
    with st.container(border=True):
        if first.imported is not None:
            answered = show.asked(
                look,
                data,
                name,
                stored.version(),
                imports.given_answers(first.upload_id),
                facts.get(first.imported.format),
                imports.wants_saved(first.upload_id),
            )
            found = answered or first
            st.text(import_tables.understood_sentence(found))
            imports.show_import(found)
            if answered is not None and found.lines_text:
                imports.outlook(data, found, against)
                if not found.already_known:
                    ready.append((data, found))
            continue
        st.text(stored_tables.preview_sentence(found))
        show.dataframe(stored_tables.preview_table(found), alt="Runs in the file")
        imports.outlook(data, found, against)
        if found.problems:
            show.note("Lines that cannot be read, and what was expected there:")
            show.dataframe(stored_tables.problem_table(found), alt="Problems by line and field")
        chosen = not found.bad_lines or st.checkbox(
            "Take its good lines alone", key=f"good_lines_{found.upload_id}", help="The bad ones stay listed below."
        )
    if chosen and not found.already_known:
        ready.append((data, found))
if ready:
    st.button(
        f"Add {len(ready)} file{'' if len(ready) == 1 else 's'}",
        type="primary",
        icon=":material/add:",
        on_click=accept,
        args=[ready, against],
        key="confirm",
    )

with st.expander("Collect on another machine", key="collect", on_change="rerun", type="compact") as box:
    if box.open:
        offered = collector.build_collector()
        about = collector.collector(offered)
        st.text(about["headline"])
        st.download_button(
            collector.FILE_NAME,
            data=offered,
            file_name=collector.FILE_NAME,
            mime="application/zip",
            icon=":material/download:",
            on_click="ignore",
            key="collector",
        )
        for command in about["commands"]:
            st.text(command["where"])
            st.code(command["text"], language="bash")

# --- what is here ---

st.subheader("Runs", anchor=False)
if not len(runs):
    show.empty(
        "No runs are stored yet.", "Add a run file above, or measure this machine.", "Sweep", "Measure this machine"
    )
else:
    show.dataframe(stored_tables.run_table(runs), alt="Stored runs, newest first")
    left, middle, right, last = st.columns([5, 2, 2, 2], vertical_alignment="bottom")
    names = dict(zip(runs["run_id"], runs["run_id"] + ", " + runs["gpu_label"], strict=True))
    with left:
        run_id = view.choice("Run", list(names), key="run", show=lambda key: names[key])
    middle.download_button(
        "Run file",
        data=lambda: export_run(store, run_id),
        file_name=f"{run_id}.jsonl",
        mime="application/jsonl",
        icon=":material/download:",
        on_click="ignore",
        width="stretch",
        help="Its lines as they came in: drop it on another Gapscope.",
    )
    right.download_button(
        "Cells as CSV",
        data=lambda: export_csv(queries.cells(store, run_ids=[run_id])),
        file_name=f"{run_id}.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
        width="stretch",
    )
    twin.next_steps(run_id)
    imports.known_besides(run_id)
    with st.expander("Export a selection", key="export", on_change="rerun", type="compact") as box:
        if box.open:
            export.offer()
waiting = queries.waiting(store)
if len(waiting):
    with st.expander(
        f"Files that wait for their rest ({len(waiting)})", key="waiting", on_change="rerun", type="compact"
    ) as box:
        if box.open:
            show.note("A sweep that writes, or a copy on its way into the runs folder: what is whole counts already.")
            show.dataframe(stored_tables.waiting_table(waiting), alt="Files that wait, and for what")


# --- out: undo, delete, restore ---


def delete(run_id: str) -> None:
    uploads.delete_run(folder, run_id)
    st.rerun()


@st.dialog("Delete this run?")
def confirm_delete(run_id: str) -> None:
    st.text(f"{run_id} leaves every page and answer. Its file stays, and it can be restored below.")
    if st.button("Delete", type="primary", icon=":material/delete:", key="delete_yes"):
        shell.guarded(delete)(run_id)


def undo(upload_id: str) -> None:
    show.asked(uploads.undo, folder, upload_id)


def redo(upload_id: str) -> None:
    show.asked(uploads.redo, folder, upload_id)


def restore(run_id: str) -> None:
    show.asked(uploads.restore_run, folder, run_id)


def release(item: str, reason: str) -> None:
    show.asked(quarantine.release, folder, item, reason)


def hold(item: str) -> None:
    show.asked(quarantine.hold, folder, item)


if len(runs) and last.button("Delete", icon=":material/delete:", key="delete", width="stretch", disabled=locked):
    confirm_delete(run_id)


def row(text: str, act: Callable[[str], None], name: str, label: str, icon: str) -> None:
    """A line of text and the button that acts on what it names; `name` makes the button's key, too."""
    left, right = st.columns([10, 2], vertical_alignment="center")
    left.text(text)
    key = f"{act.__name__}_{name}"
    right.button(label, icon=f":material/{icon}:", on_click=act, args=[name], key=key, width="stretch", disabled=locked)


def upload_rows(records: list[uploads.UploadRecord]) -> None:
    for record in records:
        words = stored_tables.upload_words(record)
        if record.active:
            row(words, undo, record.upload_id, "Undo", "undo")
        else:
            row(words, redo, record.upload_id, "Bring back", "redo")


history = uploads.history(folder)
if history:
    st.subheader("Uploads", anchor=False)
    upload_rows(history[:SHOWN])
    if len(history) > SHOWN:
        older = f"Older uploads ({len(history) - SHOWN})"
        with st.expander(older, key="older_uploads", on_change="rerun", type="compact") as box:
            if box.open:
                upload_rows(history[SHOWN:])
held = queries.quarantine(store, released=True)
if len(held):
    st.subheader("Quarantine", anchor=False)
    show.note(stored_tables.quarantine_sentence(held))
    show.dataframe(stored_tables.quarantine_table(held), alt="What is implausible, why, and whether it counts")
    items = stored_tables.releasable(held)
    if items:
        left, middle, right = st.columns([5, 5, 2], vertical_alignment="bottom")
        with left:
            item = st.selectbox("Item", list(items), format_func=items.__getitem__, key="quarantine_item")
        reason = middle.text_input("Why it may count", key="quarantine_reason", max_chars=quarantine.MAX_REASON)
        right.button(
            "Release",
            icon=":material/lock_open:",
            on_click=release,
            args=[item, reason],
            disabled=locked or not reason.strip(),
            key="release",
            width="stretch",
        )
    for item in stored_tables.released(held):
        row(stored_tables.released_words(held, item), hold, item, "Hold back", "lock")
hidden = queries.hidden_runs(store)
if hidden:
    st.subheader("Deleted runs", anchor=False)
    for name in hidden[:SHOWN]:
        row(name, restore, name, "Restore", "restore_from_trash")
    if len(hidden) > SHOWN:
        with st.expander(
            f"More deleted runs ({len(hidden) - SHOWN})", key="more_deleted", on_change="rerun", type="compact"
        ) as box:
            if box.open:
                for name in hidden[SHOWN:]:
                    row(name, restore, name, "Restore", "restore_from_trash")
problems = queries.problems(store)
if len(problems):
    with st.expander(
        f"Lines that do not count ({len(problems)})", key="problems", on_change="rerun", type="compact"
    ) as box:
        if box.open:
            show.note("They are kept in their files and left out of every answer.")
            show.dataframe(stored_tables.stored_problem_table(problems), alt="Lines that do not count, with the reason")
