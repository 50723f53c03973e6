"""Sweep: plan, start, watch live, stop, resume. All state is in the runs folder and in the URL."""

from typing import Any

import streamlit as st

from core.answers.terms import help_for
from core.charts import samples as sample_charts
from core.charts import speedup, theme
from core.charts.tables import cells as cells_tables
from core.charts.tables import sweep as sweep_tables
from core.charts.tables.values import number
from core.records import PRECISIONS
from core.store import jobs, queries
from core.store.progress import RunProgress, run_progress
from core.trackers import registry
from pages.parts import access, planned, shell, show, stored, twin, view

ACTIVE = ("running", "queued")
STATE_WORDS = {
    "queued": "waiting for the device",
    "running": "running",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
    "lost": "ended without a word",
}
EXTRA = ("execution", "memory_format", "cudnn_benchmark", "sdp_backend", "handicap", "own_handicap")

shell.start("Sweep")
folder = stored.runs_folder()


def start(argv: list[str]) -> None:
    started = show.asked(jobs.start_sweep, argv, folder)
    if started is not None:
        st.session_state["run"] = started


def stop(run_id: str) -> None:
    show.asked(jobs.stop, run_id, folder)


def resume(run_id: str) -> None:
    show.asked(jobs.resume, run_id, folder)


def options() -> list[str]:
    """The form, as options of the runner. An empty field means: as the preset has it."""
    cards = planned.gpus()
    allowed = planned.choices()
    missing = planned.missing_trackers()
    first = st.columns([2, 3, 4, 3])
    with first[0]:
        preset = view.choice("Preset", allowed["presets"], key="preset", help=help_for("preset"))
    with first[1]:
        ready = [selector for selector in registry.selectors() if selector not in missing]
        trackers = view.choices(
            "Trackers", ready, key="trackers", placeholder="as the preset", help=help_for("tracker")
        )
    with first[2]:
        precisions = view.choices(
            "Precisions",
            PRECISIONS,
            key="precisions",
            placeholder="as the preset",
            help=" ".join(f"{name}: {help_for(name)}" for name in PRECISIONS),
        )
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
            ("resolution", "Resolution", f"256, 384 or 256x384. {help_for('resolution')}"),
            ("frames", "Frames", f"24, 47. {help_for('frames')}"),
            ("points", "Query points", f"64, 256. {help_for('query points')}"),
            ("processes", "Processes", help_for("process")),
            ("budget", "Budget", f"90s, 10m. {help_for('budget')}"),
            ("label", "Label", "A name for this run."),
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
    argv += more_settings(allowed)
    if not cards:
        show.note("No GPU driver is found on this machine: the sweep runs on the CPU, with wall times only.")
    if missing:
        label = "Official trackers: what each needs"
        with st.expander(label, key="official", on_change="rerun", type="compact") as box:
            if box.open:
                show.note(
                    "Official models run from your own copy of their repository. Name its path in the table "
                    f"[checkouts] of {planned.TRACKERS_FILE} beside app.py, and the tracker joins the list above."
                )
                show.dataframe(
                    sweep_tables.tracker_table(registry.table(), missing), alt="Official trackers and what they need"
                )
    return argv


def more_settings(allowed: dict[str, Any]) -> list[str]:
    """Execution, layout and library settings, and what to take away from the device; open where a link names one."""
    asked = any(st.query_params.get(key) for key in EXTRA)
    with st.expander("Execution and handicaps", expanded=asked, type="compact"):
        first = st.columns(4)
        argv = []
        for column, (name, label, hint) in zip(
            first,
            (
                ("execution", "Execution", help_for("execution")),
                ("memory_format", "Memory format", "The order in which images lie in memory."),
                ("cudnn_benchmark", "cuDNN search", "on: cuDNN tries its algorithms for each new shape first."),
                ("sdp_backend", "Attention", "Which implementation of attention PyTorch may use."),
            ),
            strict=True,
        ):
            with column:
                values = allowed[f"{name}s"]
                picked = view.choices(label, values, key=name, placeholder=values[0], help=hint)
                argv += [f"--{name.replace('_', '-')}", *picked] if picked else []
        left, right = st.columns([3, 1])
        words = {item["value"]: item["words"] for item in allowed["handicaps"]}
        with left:
            taken = view.choices(
                "Handicaps",
                list(words),
                key="handicap",
                placeholder="none",
                help=f"{help_for('handicap')} Each is measured beside the same work without it. "
                + "; ".join(f"{value}: {text}" for value, text in words.items()),
            )
        with right:
            own = view.text("Other values", "", key="own_handicap", help="sm_count=66, or several joined by +")
        if taken or own.strip():
            argv += ["--handicap", "none", *taken, *own.replace(",", " ").split()]
    return argv


def size_of(run_id: str) -> int:
    path = folder.run_file(run_id)
    return path.stat().st_size if path.exists() else 0


@st.cache_data(max_entries=32, show_spinner=False)
def progress_of(run_id: str, size_bytes: int) -> RunProgress:
    """Progress of a run whose file has this size: a sweep on a CPU must not pay for being watched."""
    return run_progress(folder, run_id)


@st.cache_data(max_entries=16, show_spinner=False)
def drawn(run_id: str, data_version: int, mode: show.Mode) -> dict[str, Any]:
    """What is measured so far in a run: charts with their findings (None without an ok cell) and tables."""
    lines = queries.cells(stored.store(), run_ids=[run_id])
    found: dict[str, Any] = {
        "table": sweep_tables.live_table(lines),
        "failed": sweep_tables.failed_table(lines),
        "bars": None,
        "samples": None,
    }
    done = cells_tables.by_cell(lines)
    if not len(done):
        return found
    newest = done.iloc[::-1].reset_index(drop=True)
    finding = sweep_tables.live_finding(newest)
    rows = newest.assign(label=cells_tables.cell_names(newest))
    made = speedup.time_bars(rows, finding, sweep_tables.live_conditions(newest), mode)
    found["bars"] = theme.spec(made), finding
    last = lines[lines["status"] == "ok"].sort_values("seq").iloc[[-1]]
    samples = sweep_tables.flagged(
        queries.samples(stored.store(), run_id, last["seq"]),
        int(last["process"].iloc[0]),
        number(queries.run_header(stored.store(), run_id)["max_sm_clock_mhz"].iloc[0]),
    )
    finding = sweep_tables.repetition_finding(samples, sweep_tables.cell_words(last))
    made = sample_charts.sample_strip(
        samples,
        last["gpu_key"].iloc[0],
        float(last["wall_median_ms"].iloc[0]),
        finding,
        sweep_tables.repetition_conditions(samples),
        mode,
    )
    found["samples"] = theme.spec(made), finding, sweep_tables.repetition_table(samples)
    return found


def controls(job: jobs.Job, progress: RunProgress) -> None:
    """Stop while it runs; resume when it ended early; once more for what failed."""
    if job.state in ACTIVE:
        st.button(
            "Stop after this cell" if job.state == "running" else "Take out of the queue",
            icon=":material/stop_circle:",
            on_click=stop,
            args=[job.run_id],
            disabled=job.stop_requested or access.locked(),
            key="stop",
        )
    elif job.state != "done":
        st.button(
            "Resume",
            icon=":material/play_arrow:",
            on_click=resume,
            args=[job.run_id],
            key="resume",
            disabled=access.locked(),
            help="Goes on in the same file; finished cells are not repeated, failed ones are.",
        )
    elif progress.repeatable:
        st.button(
            f"Measure {progress.repeatable} failed cell{'' if progress.repeatable == 1 else 's'} again",
            icon=":material/replay:",
            on_click=resume,
            args=[job.run_id],
            key="again",
            disabled=access.locked(),
            help="Goes on in the same file; what was measured stays.",
        )


@st.fragment(run_every=1.0)
@shell.guarded
def live(run_id: str, seen: tuple[tuple[str, str], ...]) -> None:
    """The chosen run, from its file and the store; reads no more than a size and a version while nothing changes."""
    states = jobs.states(folder)
    now = tuple((job.run_id, job.state) for job in states)
    if now != seen:
        ended = [job for job in states if dict(seen).get(job.run_id) in ACTIVE and job.state not in ACTIVE]
        st.session_state["ended"] = [
            sweep_tables.ended_words(progress_of(job.run_id, size_of(job.run_id)), job, STATE_WORDS[job.state])
            for job in ended
        ]
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
    if job.state == "queued":
        show.note(sweep_tables.queue_words(states, run_id))
    controls(job, progress)
    found = drawn(run_id, stored.version(), show.mode())
    if found["bars"] is not None:
        spec, finding = found["bars"]
        st.vega_lite_chart(spec=spec, theme=None, alt=finding, key="live_chart")
    if progress.ok and job.state not in ACTIVE:
        twin.next_steps(run_id)
    if len(found["failed"]):
        st.markdown(f"**{show.plain(sweep_tables.failed_words(found['failed']))}**")
        show.dataframe(found["failed"], alt="Cells without a time, with the reason")
    if found["samples"] is not None:
        spec, finding, readings = found["samples"]
        st.vega_lite_chart(spec=spec, theme=None, alt=finding, key="samples_chart")
        with st.expander("Table", key="samples_table", on_change="rerun", type="compact") as box:
            if box.open:
                show.dataframe(readings, alt=f"Table of the chart: {finding}")
    if len(found["table"]):
        with st.expander("Every cell so far", key="cells", on_change="rerun", type="compact") as box:
            if box.open:
                show.dataframe(found["table"], alt="Cells of this run, newest first")


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
        disabled=access.locked(),
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
    run_id = view.choice("Run", names, key="run", help=help_for("sweep")) if len(names) > 1 else names[0]
    view.use("run")
    live(run_id, tuple((job.run_id, job.state) for job in states))
    if len(names) > 1:
        with st.expander("All sweeps of this machine", key="sweeps", on_change="rerun", type="compact") as box:
            if box.open:
                show.dataframe(
                    sweep_tables.job_table(states, [progress_of(name, size_of(name)) for name in names], STATE_WORDS),
                    alt=f"Sweeps: {'; '.join(words.values())}",
                )


for words in st.session_state.pop("ended", []):
    st.toast(show.plain(words), icon=":material/notifications:", duration="long")
states = jobs.states(folder)
if states:
    own_runs(states)
    st.subheader("New sweep", anchor=False)
plan_and_start()
if not states:
    st.space("small")
    show.empty(
        "No sweep has run here yet.",
        "Press Start: the quick preset takes about a minute, also without a GPU. It goes on when you close this tab.",
    )
