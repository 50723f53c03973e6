"""A sweep is a process of its own: it outlives its starter, stops when asked, goes on where it stopped."""
from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import build_run, cell

from core.errors import UserError
from core.records import RunsFolder, read_run_file
from core.store import jobs

PROJECT = Path(__file__).resolve().parent.parent

RUNNER = '''
import sys, time
from pathlib import Path
sys.path.insert(0, "TESTS")
from builders import cell, header
from core.records import End, RunsFolder, RunWriter
arguments = sys.argv[1:]
if "--label=bad" in arguments:
    print("option --bad is not known")
    sys.exit(2)
runs = RunsFolder(arguments[arguments.index("--runs") + 1])
resume = "--resume" in arguments
run_id = Path(arguments[arguments.index("--resume") + 1]).parent.name if resume \\
    else arguments[arguments.index("--run-id") + 1]
runs.claim(run_id)
with RunWriter(runs.run_file(run_id), run_id, resume=resume) as writer:
    if not resume:
        writer.write(header("cpu", label=" ".join(arguments[1:-4])))
    for process in range(200):
        if runs.stop_requested(run_id):
            writer.write(End("stopped", "asked to"))
            sys.exit(0)
        writer.write(cell(cuda=False, process=process))
        if resume or "--label=short" in arguments:
            break
        time.sleep(0.05)
    writer.write(End("done"))
'''


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsFolder:
    """A runs folder, and a runner that writes lines without measuring, in place of core.measure."""
    script = tmp_path / "runner.py"
    script.write_text(RUNNER.replace("TESTS", str(PROJECT / "tests")))
    monkeypatch.setattr(jobs, "RUNNER", (str(script),))
    return RunsFolder(tmp_path / "runs")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_sweep_starts_runs_and_ends_by_itself(runs: RunsFolder) -> None:
    run_id = jobs.start_sweep(["--preset", "quick", "--label=short"], runs)
    assert jobs.job(run_id, runs).state in ("queued", "running", "done")
    wait_for(lambda: jobs.job(run_id, runs).state == "done")
    found = read_run_file(runs.run_file(run_id))
    assert found.header is not None
    assert found.header.label == "--preset quick --label=short"
    assert jobs.states(runs)[0].run_id == run_id


def test_a_sweep_stops_when_asked_and_resumes_under_the_same_id(runs: RunsFolder) -> None:
    run_id = jobs.start_sweep([], runs)
    wait_for(lambda: jobs.job(run_id, runs).state == "running")
    with pytest.raises(UserError, match="is running"):
        jobs.resume(run_id, runs)
    jobs.stop(run_id, runs)
    assert jobs.job(run_id, runs).stop_requested
    wait_for(lambda: jobs.job(run_id, runs).state == "stopped")
    before = len(read_run_file(runs.run_file(run_id)).lines)
    jobs.resume(run_id, runs)
    wait_for(lambda: jobs.job(run_id, runs).state == "done")
    found = read_run_file(runs.run_file(run_id)).lines
    assert len(found) == before + 2
    assert {line.run_id for line in found} == {run_id}
    assert not jobs.job(run_id, runs).stop_requested


def test_a_sweep_outlives_the_process_that_started_it(runs: RunsFolder, tmp_path: Path) -> None:
    code = (
        "import sys; from core.store import jobs; from core.records import RunsFolder; "
        f"jobs.RUNNER = ({str(tmp_path / 'runner.py')!r},); print(jobs.start_sweep([], RunsFolder(sys.argv[1])))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(runs.root)], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    run_id = out.strip()
    wait_for(lambda: jobs.job(run_id, runs).state == "running")
    jobs.stop(run_id, runs)
    wait_for(lambda: jobs.job(run_id, runs).state == "stopped")


def test_a_refused_start_shows_what_the_runner_said(runs: RunsFolder) -> None:
    run_id = jobs.start_sweep(["--label=bad"], runs)
    wait_for(lambda: jobs.states(runs)[0].state == "lost")
    assert jobs.job(run_id, runs).message == "option --bad is not known"
    with pytest.raises(UserError, match="no run file"):
        jobs.resume(run_id, runs)


def test_a_killed_runner_is_lost_and_can_be_resumed(runs: RunsFolder) -> None:
    run_id = jobs.start_sweep([], runs)
    wait_for(lambda: jobs.job(run_id, runs).state == "running")
    pid = jobs.job(run_id, runs).pid
    child = next(child for child in jobs._children if child.pid == pid)
    child.kill()
    wait_for(lambda: jobs.job(run_id, runs).state == "lost")
    jobs.resume(run_id, runs)
    wait_for(lambda: jobs.job(run_id, runs).state == "done")


def test_only_a_running_sweep_can_be_stopped(runs: RunsFolder) -> None:
    build_run(runs, "cpu", [cell(cuda=False)])
    with pytest.raises(UserError, match="is done; expected a running one"):
        jobs.stop("20261130-100000-00000001", runs)
    assert not runs.stop_requested("20261130-100000-00000001")


def test_the_runner_is_core_measure_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise RuntimeError('not ours')")
    monkeypatch.chdir(tmp_path)
    runs = RunsFolder(tmp_path / "runs")
    run_id = jobs.start_sweep(["--preset", "no-such-preset"], runs)
    wait_for(lambda: jobs.job(run_id, runs).state == "lost")
    assert "not ours" not in (runs.run_dir(run_id) / "stdout.log").read_text()
