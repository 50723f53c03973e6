"""Sweep: plan, start, watch live, stop, resume. All state is in the runs folder and in the URL."""

from typing import Any

import pandas as pd
import streamlit as st

from core.charts import speedup, theme
from core.charts.tables import cells as cells_tables
from core.charts.tables import sweep as sweep_tables
from core.records import PRECISIONS
from core.store import jobs, queries
from core.store.progress import RunProgress, run_progress
from core.trackers import registry
from pages.parts import planned, shell, show, stored, twin, view

ACTIVE = ("running", "queued")
STATE_WORDS = {
    "queued": "waiting for the device",
    "running": "running",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
    "lost": "ended without a word",
}

shell.start("Sweep")
folder = stored.runs_folder()


def start(argv: list[str]) -> None:
    st.session_state["run"] = jobs.start_sweep(argv, folder)


def stop(run_id: str) -> None:
    show.asked(jobs.stop, run_id, folder)


def resume(run_id: str) -> None:
    show.asked(jobs.resume, run_id, folder)


def options() -> list[str]:
    """The form, as options of the runner. An empty field means: as the preset has it."""
    cards = planned.gpus()
    first = st.columns([2, 3, 4, 3])
    with first[0]:
        preset = view.choice(
            "Preset",
            ["quick", "standard", "careful"],
            key="preset",
            help="What is not given below comes from here. quick takes about a minute on two CPU cores.",
        )
    with first[1]:
        trackers = view.choices("Trackers", registry.selectors(), key="trackers", placeholder="as the preset")
    with first[2]:
        precisions = view.choices("Precisions", PRECISIONS, key="precisions", placeholder="all five")
    with first[3]:
        names = {
            "auto": f"auto ({cards[0] if cards else 'CPU'})",
            "cpu": "CPU",
            **{f"cuda:{i}": f"cuda:{i} ({name})" for i, name in enumerate(cards)},
        }
        device = view.choice("Device", list(names), key="device", show=lambda key: names[key])
    second = st.columns([2, 2, 2, 2, 2, 2])
    texts = {}
    for column, (name, label, hint) in zip(
        second,
        (
            ("resolution", "Resolution", "256, 384 or 256x384: height x width, in pixels"),
            ("frames", "Frames", "24, 47"),
            ("points", "Query points", "64, 256"),
            ("processes", "Processes", "worker processes per cell; from five on intervals are between processes"),
            ("budget", "Budget", "90s, 10m"),
            ("label", "Label", "a name for this run"),
        ),
        strict=True,
    ):
        with column:
            texts[name] = view.text(
                label,
                "",
                key=name,
                help=hint,
                placeholder="as the preset" if name not in ("budget", "label") else "none",
            )
    argv = ["--preset", preset, "--device", device]
    for name, picked in (("tracker", trackers), ("precision", precisions)):
        argv += [f"--{name}", *picked] if picked else []
    for name in ("resolution", "frames", "points"):
        argv += [f"--{name}", *texts[name].replace(",", " ").split()] if texts[name].strip() else []
    for name in ("processes", "budget", "label"):
        argv += [f"--{name}={texts[name].strip()}"] if texts[name].strip() else []
    if not cards:
        show.note("No GPU driver is found on this machine: the sweep runs on the CPU, with wall times only.")
    return argv


def size_of(run_id: str) -> int:
    path = folder.run_file(run_id)
    return path.stat().st_size if path.exists() else 0


@st.cache_data(max_entries=32, show_spinner=False)
def progress_of(run_id: str, size_bytes: int) -> RunProgress:
    """Progress of a run whose file has this size: a sweep on a CPU must not pay for being watched."""
    return run_progress(folder, run_id)


@st.cache_data(max_entries=16, show_spinner=False)
def drawn(run_id: str, data_version: int, mode: show.Mode) -> tuple[dict[str, Any] | None, str, pd.DataFrame]:
    """What is measured so far in a run: chart (None without an ok cell), its finding, table of all lines."""
    cells = queries.cells(stored.store(), run_ids=[run_id])
    done = cells_tables.by_cell(cells)
    if not len(done):
        return None, "", sweep_tables.live_table(cells)
    newest = done.iloc[::-1].reset_index(drop=True)
    finding = sweep_tables.live_finding(newest)
    rows = newest.assign(label=cells_tables.cell_names(newest))
    made = speedup.time_bars(rows, finding, sweep_tables.live_conditions(newest), mode)
    return theme.spec(made), finding, sweep_tables.live_table(cells)


@st.fragment(run_every=1.0)
@shell.guarded
def live(run_id: str, seen: tuple[tuple[str, str], ...]) -> None:
    """The chosen run, from its file and the store; reads no more than a size and a version while nothing changes."""
    states = jobs.states(folder)
    if tuple((job.run_id, job.state) for job in states) != seen:
        st.rerun()  # a run came, ended or was resumed: the list changes too
    job = next(job for job in states if job.run_id == run_id)
    progress = progress_of(run_id, size_of(run_id))
    show.sentence(sweep_tables.progress_sentence(progress, job, STATE_WORDS[job.state]))
    if progress.cells:
        st.progress(min(progress.done / progress.cells, 1.0))
    if job.message and job.state != "done":
        st.warning(show.plain(job.message), icon=":material/info:")
    for warning in progress.warnings:
        st.warning(show.plain(warning), icon=":material/info:")
    if job.state in ACTIVE:
        st.button(
            "Stop after this cell",
            icon=":material/stop_circle:",
            on_click=stop,
            args=[run_id],
            disabled=job.stop_requested,
            key="stop",
        )
    elif job.state != "done":
        st.button(
            "Resume",
            icon=":material/play_arrow:",
            on_click=resume,
            args=[run_id],
            key="resume",
            help="Goes on in the same file; finished cells are not repeated.",
        )
    spec, finding, table = drawn(run_id, stored.version(), show.mode())
    if spec is not None:
        st.vega_lite_chart(spec=spec, theme=None, alt=finding, key="live_chart")
    if progress.ok and job.state not in ACTIVE:
        twin.next_steps(run_id)
    if len(table):
        show.dataframe(table, alt="Cells of this run, newest first")


def plan_and_start() -> None:
    """What would be measured, what it would take, and the button."""
    argv = options()
    plan = show.asked(planned.plan, tuple(argv))
    if plan is None:
        return
    left, right = st.columns([3, 9], vertical_alignment="center")
    left.button(
        "Start",
        type="primary",
        icon=":material/play_circle:",
        on_click=start,
        args=[argv],
        key="start",
        width="stretch",
    )
    right.markdown(f"**{show.plain(sweep_tables.plan_sentence(plan))}**")
    with st.expander("Plan and command", key="plan", on_change="rerun", type="compact") as box:
        if box.open:
            show.dataframe(sweep_tables.plan_table(plan), alt="Planned cells with predicted time and memory")
            show.note(plan["prediction"])
            st.code(sweep_tables.command(argv), language="bash")


def own_runs(states: list[jobs.Job]) -> None:
    """The chosen run, live; the newest one unless the link says otherwise."""
    names = [job.run_id for job in states]
    words = {job.run_id: f"{job.run_id}, {STATE_WORDS[job.state]}" for job in states}
    run_id = view.choice("Run", names, key="run") if len(names) > 1 else names[0]
    view.use("run")
    live(run_id, tuple((job.run_id, job.state) for job in states))
    if len(names) > 1:
        with st.expander("All sweeps of this machine", key="sweeps", on_change="rerun", type="compact") as box:
            if box.open:
                show.dataframe(
                    sweep_tables.job_table(states, [progress_of(name, size_of(name)) for name in names], STATE_WORDS),
                    alt=f"Sweeps: {'; '.join(words.values())}",
                )


plan_and_start()
st.space("small")
states = jobs.states(folder)
if states:
    own_runs(states)
else:
    show.empty(
        "No sweep has run here yet.",
        "Press Start: the quick preset takes about a minute, also without a GPU. It goes on when you close this tab.",
    )
