"""The runner with a fake worker (no torch, starts at once): lost workers, stop, budget, resume, kill -9, one device.

The fake obeys the number of points of a cell: 13 dies, 17 hangs, 19 runs out of memory and asks to be replaced,
23 answers nonsense, 29 a record with a negative time, 37 dies on its first try only. Every other cell takes
`SLEEP_S`. It cannot do the handicap host_cores=3.
"""
from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import UserError
from core.measure import host, run
from core.measure.__main__ import main
from core.measure.plan import Effort, Size, SweepRequest
from core.records import Ceiling, Cell, End, Note, RunsFolder, device_lock, read_run_file

ROOT = Path(__file__).resolve().parent.parent

FAKE_WORKER = r'''
import json, os, signal, sys, time
uuid, sleep_s, busy = sys.argv[1], float(sys.argv[2]), sys.argv[3] or None
log, handicap = sys.argv[4], None
open(log, "a").write("start\n")
def send(message): print(json.dumps(message), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "quit": break
    if order["do"] == "hello":
        kind = "cuda" if uuid.startswith("c") else "cpu"
        send({"type": "hello", "device": {"type": kind, "name": "Fake", "uuid_hash": uuid},
              "host": {"cores": 2, "ram_bytes": 64 * 2**30}, "software": {"python": "3", "torch": "2.0"},
              "settings": {}, "warnings": [], "busy": busy})
        continue
    if order["do"] == "devices":
        send({"type": "devices", "devices": [{"device": "board:" + c * 32} for c in "ab"]})
        continue
    if order["do"] == "ceilings":
        send({"type": "ceiling", "ceiling": {"metric": "copy", "value": 4200.0, "unit": "GB/s"}})
        send({"type": "ceilings"})
        continue
    if order["do"] == "handicap":
        handicap = order["handicap"]
        if handicap == "host_cores=3": send({"type": "user_error", "found": "no 3 cores", "expected": "", "fix": ""})
        else: send({"type": "handicap", "notes": {}})
        continue
    if order["do"] == "self_test":
        send({"type": "self_test", "result": {"ok": False, "text": "clocks are out of order", "wall_ms": 1.0}})
        continue
    points = order["workload"]["work"]["points"]
    if order["do"] == "profile":
        if points == 31 or handicap == "host_cores=4": os.kill(os.getpid(), signal.SIGKILL)
        send({"type": "profile", "launches": {"other": 5}, "notes": {"profiled_by": os.getpid()},
              "fields": {"kernel_busy_ms": 0.5, "profiled_wall_ms": 2.5, "coverage": 1.0,
                         "ops": [{"op": "aten::mm", "stage": "other", "device_ms": 0.5}]}})
        continue
    cell = {"process": order["process"], "workload": order["workload"], "status": "ok",
            "wall_ms": [1.0, 2.0, order["effort"]["sample_s"]],
            "execution_path": {"timed_by": os.getpid(), "handicap": handicap, "asked_drift": order["drift"]},
            "stages": [{"name": "other", "wall_ms": [1.0, 2.0, 3.0], "flops": 7 if order["count"] else None}]}
    send({"type": "progress", "phase": "warmup", "count": 0})
    time.sleep(sleep_s)
    if points == 37 and open(log).read().count("died") == 0:
        open(log, "a").write("died\n")
        os.kill(os.getpid(), signal.SIGKILL)
    if points == 13: os.kill(os.getpid(), signal.SIGKILL)
    if points == 17: time.sleep(60)
    if points == 41:
        send({"type": "user_error", "found": "the weights do not fit", "expected": "a checkpoint", "fix": "another"})
        continue
    if points == 19: cell = {**cell, "status": "oom", "reason": "out of GPU memory", "wall_ms": [], "stages": []}
    if points == 23: cell = {"process": "none"}
    if points == 29: cell["wall_ms"] = [-1.0, 2.0, 3.0]
    send({"type": "cell", "cell": cell, "retire": points == 19})
'''


def request(points: list[int], **changes: Any) -> SweepRequest:
    fields: dict[str, Any] = {
        "preset": "quick", "trackers": ("local4d:small",), "precisions": ("fp32",),
        "sizes": tuple(Size(8, 32, 32, count) for count in points), "effort": Effort(0.1, 1.0, 3, 10),
        "device": "cpu", "cell_timeout_s": 60.0,
    }
    return SweepRequest(**{**fields, **changes})


class Bench:
    """A runs folder and a fake worker in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, RunsFolder(folder / "runs")
        (folder / "fake_worker.py").write_text(FAKE_WORKER)
        self.log = folder / "starts.log"
        self.said: list[str] = []

    def command(self, uuid: str = "f" * 32, sleep_s: float = 0.0, busy: str = "") -> list[str]:
        return [sys.executable, str(self.folder / "fake_worker.py"), uuid, str(sleep_s), busy, str(self.log)]

    def measure(self, asked: SweepRequest, run_id: str = "run-one", **how: Any) -> int:
        target = run.new_target(asked, self.runs, run_id)
        return run.run_sweep(target, self.said.append, self.command(**how))

    def resume(self, run_id: str = "run-one", budget_s: float | None = None, **how: Any) -> int:
        target = run.resumed_target(self.runs.run_file(run_id), self.runs, budget_s)
        return run.run_sweep(target, self.said.append, self.command(**how))

    def records(self, kind: type, run_id: str = "run-one") -> list[Any]:
        found = read_run_file(self.runs.run_file(run_id))
        assert not found.problems
        return [line.record for line in found.lines if isinstance(line.record, kind)]

    def statuses(self, run_id: str = "run-one") -> dict[int, str]:
        return {cell.workload.work.points: cell.status for cell in self.records(Cell, run_id)}

    def when(self, condition: Callable[[str], bool], act: Callable[[], object], run_id: str = "run-one") -> None:
        """Do `act` from another thread as soon as the text of the run file fulfils `condition`."""
        path = self.runs.run_file(run_id)

        def watch() -> None:
            wait_until(lambda: path.exists() and condition(path.read_text(errors="replace")), 30)
            act()

        threading.Thread(target=watch, daemon=True).start()

    @property
    def worker_starts(self) -> int:
        return self.log.read_text().splitlines().count("start")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_one_worker_serves_all_cells_of_a_process_repeat(bench: Bench) -> None:
    assert bench.measure(request([1, 2, 3, 4], processes=2)) == 0
    assert len(bench.records(Cell)) == 8
    assert bench.worker_starts == 2
    assert [note.event for note in bench.records(Note)] == ["plan", *["cell_started"] * 8]
    assert bench.records(End)[-1].state == "done"
    assert bench.runs.state("run-one") == "done"


def test_a_cell_that_starts_says_which_of_how_many(bench: Bench) -> None:
    bench.measure(request([1, 2]))
    plan, *started = bench.records(Note)
    assert plan.data["cells"] == 2
    assert [(note.data["index"], note.data["total"]) for note in started] == [(0, 2), (1, 2)]
    assert started[0].data["workload"]["work"]["tracker"] == "local4d"


def test_a_lost_worker_costs_its_cell_and_the_sweep_goes_on(bench: Bench) -> None:
    assert bench.measure(request([1, 13, 17, 19, 23, 29, 2], cell_timeout_s=1.5)) == 0
    assert bench.statuses() == {1: "ok", 13: "failed", 17: "timeout", 19: "oom", 23: "failed", 29: "failed", 2: "ok"}
    reasons = {cell.workload.work.points: cell.reason for cell in bench.records(Cell)}
    assert "SIGKILL" in reasons[13]
    assert "no sign of life for 1.5 s in phase 'warmup'" in reasons[17]
    assert "wall_ms" in reasons[29]
    assert bench.records(End)[-1].state == "done"


def test_a_cell_whose_worker_died_is_tried_once_more_and_both_are_told(bench: Bench) -> None:
    assert bench.measure(request([37, 13, 1])) == 0
    assert bench.statuses() == {37: "ok", 13: "failed", 1: "ok"}
    told = {note.text.split(": ")[0] for note in bench.records(Note) if note.event == "warning"}
    assert told == {"local4d:small 8f 32x32 37p fp32", "local4d:small 8f 32x32 13p fp32"}
    assert [cell.workload.work.points for cell in bench.records(Cell)].count(13) == 1  # one record for the cell


def test_each_handicap_has_processes_of_its_own(bench: Bench) -> None:
    asked = request([1, 2], handicaps=(None, "host_cores=1", "host_cores=2"), precisions=("fp32", "bf16"))
    assert bench.measure(asked) == 0
    cells = bench.records(Cell)
    assert len(cells) == 12
    assert all(cell.execution_path["handicap"] == cell.workload.setting.handicap for cell in cells)
    processes = {(cell.execution_path["timed_by"], cell.workload.setting.handicap) for cell in cells}
    assert len(processes) == 3 == bench.worker_starts


def test_a_cudnn_search_has_a_process_that_has_not_chosen_before(bench: Bench) -> None:
    assert bench.measure(request([1, 2], cudnn_benchmarks=(False, True))) == 0
    served = {(cell.execution_path["timed_by"], cell.workload.setting.cudnn_benchmark) for cell in bench.records(Cell)}
    assert len(served) == 2 == bench.worker_starts


def test_a_handicap_that_cannot_be_done_is_unsupported_with_the_reason(bench: Bench) -> None:
    asked = request([1, 2], handicaps=("host_cores=3", "sm_count=40", None))
    assert bench.measure(asked) == 0
    reasons = {cell.workload.setting.handicap: (cell.status, cell.reason) for cell in bench.records(Cell)}
    assert reasons["host_cores=3"][0] == "unsupported"
    assert "no 3 cores" in str(reasons["host_cores=3"][1])
    assert reasons["sm_count=40"] == ("unsupported", "handicap sm_count needs a CUDA device")
    assert reasons[None][0] == "ok"


def test_what_cannot_fit_is_skipped_with_both_numbers_unless_forced(bench: Bench) -> None:
    huge = Size(47, 8192, 8192, 1)  # the features of one clip alone are more than any host has
    assert bench.measure(request([1], sizes=(Size(8, 32, 32, 1), huge))) == 0
    (skipped,) = [cell for cell in bench.records(Cell) if cell.status == "skipped"]
    assert skipped.workload.work.height == 8192
    assert "predicted to need" in str(skipped.reason)
    assert "this device has 64.0 GiB" in str(skipped.reason)
    bench.measure(request([1], sizes=(huge,), force=True), run_id="forced")
    assert bench.records(Cell, "forced")[0].status == "ok"


def test_ceilings_are_measured_once_before_the_first_cell_of_a_run_that_asks_for_them(bench: Bench) -> None:
    bench.when(lambda text: '"kind":"cell"' in text, lambda: bench.runs.request_stop("run-one"))
    bench.measure(request(list(range(100, 110)), ceilings=True), uuid="c" * 32, sleep_s=0.1)
    bench.resume(uuid="c" * 32)
    kinds = [line.kind for line in read_run_file(bench.runs.run_file("run-one")).lines]
    assert kinds.count("ceiling") == 1
    assert kinds.index("ceiling") < kinds.index("cell")
    bench.measure(request([1], ceilings=True), run_id="on-a-cpu")
    assert not bench.records(Ceiling, "on-a-cpu")


def test_all_stands_for_every_board_by_its_id(bench: Bench) -> None:
    assert run.visible_devices(bench.command()) == ["board:" + "a" * 32, "board:" + "b" * 32]


def test_clocks_that_disagree_are_a_warning_of_the_run(bench: Bench) -> None:
    bench.measure(request([1]), uuid="c" * 32)
    assert [note.text for note in bench.records(Note) if note.event == "warning"] == ["clocks are out of order"]


def test_work_counted_in_the_first_process_holds_for_the_others(bench: Bench) -> None:
    bench.measure(request([1], processes=3))
    assert [cell.stages[0].flops for cell in bench.records(Cell)] == [7, 7, 7]


def test_on_cuda_no_process_that_times_ever_profiles(bench: Bench) -> None:
    assert bench.measure(request([1, 31, 2]), uuid="c" * 32) == 0
    cells = {cell.workload.work.points: cell for cell in bench.records(Cell)}
    assert {cell.status for cell in cells.values()} == {"ok"}
    timers = {cell.execution_path["timed_by"] for cell in cells.values()}
    assert len(timers) == 1
    assert timers.isdisjoint({cells[points].execution_path["profiled_by"] for points in (1, 2)})
    assert (cells[1].kernel_busy_ms, cells[1].profiled_wall_ms, cells[1].ops[0].op) == (0.5, 2.5, "aten::mm")
    assert cells[1].stages[0].launches == 5
    assert "SIGKILL" in cells[31].execution_path["profile"]  # a lost profile costs no times
    assert cells[31].kernel_busy_ms is None


def test_a_profiler_that_is_lost_under_one_handicap_costs_the_others_nothing(bench: Bench) -> None:
    bench.measure(request([1, 2, 3, 4, 5], handicaps=(None, "host_cores=4")), uuid="c" * 32)
    by_handicap: dict[str | None, list[Cell]] = {}
    for cell in bench.records(Cell):
        by_handicap.setdefault(cell.workload.setting.handicap, []).append(cell)
    assert [cell.kernel_busy_ms for cell in by_handicap[None]] == [0.5] * 5
    tried = ["profile" in cell.execution_path for cell in by_handicap["host_cores=4"]]
    assert tried == [True, True, True, False, False]


def test_outputs_are_compared_once_for_each_setting_whether_work_was_counted_or_not(bench: Bench) -> None:
    bench.measure(request([3, 4], processes=3))
    asked = [(cell.process, cell.execution_path["asked_drift"]) for cell in bench.records(Cell)]
    assert sorted(asked) == [(0, True), (0, True), (1, False), (1, False), (2, False), (2, False)]


def test_a_mistake_that_only_a_worker_sees_is_the_answer_where_nothing_else_was_measured(bench: Bench) -> None:
    with pytest.raises(UserError, match=r"^the weights do not fit; expected a checkpoint; another\.$"):
        bench.measure(request([41]))
    assert bench.statuses() == {41: "failed"}
    assert bench.records(Cell)[0].reason == "the weights do not fit; expected a checkpoint; another."
    starts = bench.worker_starts
    assert bench.measure(request([41, 3]), "run-two") == 0
    assert bench.statuses("run-two") == {41: "failed", 3: "ok"}
    assert bench.worker_starts == starts + 1, "the worker of a mistake is as good as before"


def test_a_full_disk_is_told_in_one_sentence_and_the_run_goes_on_once_there_is_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, durable = os.fsync, []

    def fsync(descriptor: int) -> None:
        durable.append(descriptor)
        if len(durable) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UserError, match=r"run\.jsonl cannot be written \(No space left on device\); expected"):
        bench.measure(request([1, 2, 3]))
    assert read_run_file(bench.runs.run_file("run-one")).problems == ()
    bench.resume()
    assert bench.statuses() == {1: "ok", 2: "ok", 3: "ok"}


def test_a_runs_folder_that_may_not_be_written_is_told_in_one_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: RunsFolder, run_id: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/runs")

    monkeypatch.setattr(RunsFolder, "claim", forbidden)
    with pytest.raises(UserError, match=r"^runs cannot be written \(Permission denied\); expected a folder"):
        bench.measure(request([1]))


def test_a_container_that_allows_less_memory_than_the_host_has_is_believed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    limit = host.memory_limit_bytes(tmp_path)
    assert limit == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert host.memory_limit_bytes(tmp_path) is None
    monkeypatch.setattr(host, "memory_limit_bytes", lambda: limit)
    bench.measure(request([1]))
    assert bench.records(Cell)[0].status == "skipped"


def test_only_lost_cells_without_any_good_one_is_a_failure(bench: Bench) -> None:
    assert bench.measure(request([13])) == 1


def test_a_stop_file_stops_after_the_running_cell_and_resume_does_the_rest(bench: Bench) -> None:
    bench.when(lambda text: '"kind":"cell"' in text, lambda: bench.runs.request_stop("run-one"))
    assert bench.measure(request(list(range(100, 130))), sleep_s=0.1) == 0
    done = len(bench.records(Cell))
    assert 0 < done < 30
    assert bench.records(End)[-1].state == "stopped"
    assert bench.resume() == 0
    assert len(bench.records(Cell)) == len(bench.statuses()) == 30
    assert [note.data["remaining"] for note in bench.records(Note) if note.event == "resumed"] == [30 - done]


def test_resume_repeats_lost_cells_only(bench: Bench) -> None:
    bench.measure(request([1, 13, 19]))
    bench.resume()
    assert sorted(cell.workload.work.points for cell in bench.records(Cell)) == [1, 13, 13, 19]


def test_first_signal_stops_after_the_cell_and_the_second_at_once(bench: Bench) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    bench.when(lambda text: "cell_started" in text, interrupt)
    assert bench.measure(request([1, 2, 3]), sleep_s=0.5) == 0
    assert len(bench.records(Cell)) == 1
    bench.when(lambda text: "cell_started" in text, lambda: (interrupt(), time.sleep(0.2), interrupt()), "run-two")
    started = time.monotonic()
    assert bench.measure(request([1, 2]), "run-two", sleep_s=50.0) == 0
    assert time.monotonic() - started < 25
    assert bench.records(Cell, "run-two") == []
    end = bench.records(End, "run-two")[-1]
    assert (end.state, end.reason) == ("stopped", "interrupted")


def test_a_budget_shrinks_the_samples_of_each_cell_and_ends_the_sweep(bench: Bench) -> None:
    assert bench.measure(request([1, 2, 3, 4], budget_s=1.2), sleep_s=0.5) == 0
    end = bench.records(End)[-1]
    assert end.state == "stopped"
    assert end.reason.startswith("budget of 1.2 s spent")
    sampled_s = [cell.wall_ms[2] for cell in bench.records(Cell)]  # the fake tells its sample budget there
    assert 1 <= len(sampled_s) < 4
    assert sampled_s[0] == pytest.approx(1.2 / 4 * 0.5, rel=0.2)
    assert bench.resume() == 0
    assert bench.records(End)[-1].state == "done"


def test_a_busy_gpu_is_refused_unless_forced_and_leaves_no_run_behind(bench: Bench) -> None:
    with pytest.raises(UserError, match=r"the GPU is in use \(pid 7\)"):
        bench.measure(request([1]), busy="pid 7")
    assert not bench.runs.run_dir("run-one").exists()
    assert bench.measure(request([1], force=True), busy="pid 7") == 0


def test_a_second_sweep_waits_for_the_device_and_says_so(bench: Bench) -> None:
    held, release = threading.Event(), threading.Event()
    states: list[str] = []

    def hold() -> None:
        with device_lock(bench.runs.root, "f" * 32):
            held.set()
            release.wait(30)

    threading.Thread(target=hold, daemon=True).start()
    held.wait(5)
    bench.when(lambda text: '"queued"' in text, lambda: (states.append(bench.runs.state("run-one")), release.set()))
    assert bench.measure(request([1])) == 0
    assert states == ["queued"]
    assert [note.event for note in bench.records(Note)] == ["queued", "plan", "cell_started"]


def test_a_queued_sweep_can_be_stopped(bench: Bench) -> None:
    bench.when(lambda text: '"queued"' in text, lambda: bench.runs.request_stop("run-one"))
    with device_lock(bench.runs.root, "f" * 32):
        assert bench.measure(request([1])) == 0
    assert bench.records(End)[-1].state == "stopped"


def test_a_run_is_not_continued_on_another_device(bench: Bench) -> None:
    bench.measure(request([1, 13]))
    with pytest.raises(UserError, match="made on another device"):
        bench.resume(uuid="e" * 32)


def test_a_torn_tail_is_cut_before_a_run_is_continued(bench: Bench) -> None:
    bench.measure(request([1, 13]))
    with open(bench.runs.run_file("run-one"), "ab") as stream:
        stream.write(b'{"kind":"cell","sche')
    bench.resume()
    found = read_run_file(bench.runs.run_file("run-one"))
    assert not found.problems
    assert not found.torn


def test_a_record_is_written_somewhere_else_with_out_and_an_existing_file_is_refused(bench: Bench) -> None:
    out = bench.folder / "q.jsonl"
    target = run.new_target(request([1]), bench.runs, out=out)
    assert run.run_sweep(target, bench.said.append, bench.command()) == 0
    assert len(read_run_file(out).lines) == 5
    assert bench.runs.run_ids() == []
    with pytest.raises(UserError, match=r"q\.jsonl exists already"):
        run.new_target(request([1]), bench.runs, out=out)


def test_a_file_that_holds_only_the_start_of_a_header_does_not_block_a_new_run(bench: Bench) -> None:
    path = bench.runs.run_file("run-one")
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"kind":"run","schema":"1.')
    assert bench.measure(request([1])) == 0
    path.write_bytes(b"somebody's notes")
    with pytest.raises(UserError, match="exists already"):
        run.new_target(request([1]), bench.runs, "run-one")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--precision", "fp23"], "unknown precision"),
        (["--nonsense"], "unrecognized arguments"),
        (["--resume", "no-such.jsonl"], "no file no-such.jsonl"),
        (["--resume", "x.jsonl", "--tracker", "local4d"], "--resume with --tracker"),
    ],
)
def test_a_mistake_takes_one_line_on_stderr_and_exit_code_2(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options]) == 2
    streams = capsys.readouterr()
    assert told in streams.err
    assert streams.err.count("\n") == 1
    assert streams.out == ""


# --- kill -9 ---------------------------------------------------------------------------------------------------------

PARENT = (
    "import sys, json; from pathlib import Path; from core.measure import run; from core.records import RunsFolder\n"
    "from core.measure.plan import SweepRequest\n"
    "path, runs, command = Path(sys.argv[1]), RunsFolder(sys.argv[2]), json.loads(sys.argv[3])\n"
    "if path.exists() and b'\\n' in path.read_bytes(): target = run.resumed_target(path, runs)\n"
    "else: target = run.new_target(SweepRequest.from_json(json.loads(sys.argv[4])), runs, path.parent.name)\n"
    "sys.exit(run.run_sweep(target, print, command))\n"
)


def children_of(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def test_nothing_is_lost_or_doubled_when_runner_or_worker_are_killed_20_times(bench: Bench) -> None:
    asked = request(list(range(100, 160)), cell_timeout_s=5, processes=2)
    path = bench.runs.run_file("run-kill")
    choose = random.Random(2)
    acknowledged: set[tuple[int, str, int]] = set()

    def start() -> subprocess.Popen[bytes]:
        arguments = [str(path), str(bench.runs.root), json.dumps(bench.command(sleep_s=0.02)),
                     json.dumps(asked.to_json())]
        return subprocess.Popen([sys.executable, "-c", PARENT, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def cells() -> list[Cell]:
        return [line.record for line in read_run_file(path).lines if isinstance(line.record, Cell)]

    def settled() -> set[tuple[int, str, int]]:
        lines = read_run_file(path).lines if path.exists() and path.read_bytes().count(b"\n") else ()
        return {(line.record.process, line.record.workload.key(), line.seq) for line in lines
                if isinstance(line.record, Cell) and line.record.status == "ok"}

    kills = 0
    while kills < 20:
        process = start()
        wait_until(path.exists, 10)
        for _ in range(choose.choice([1, 1, 2, 3])):
            time.sleep(choose.uniform(0.0, 0.12))
            victims = children_of(process.pid) if choose.random() < 0.6 else []
            for pid in victims[:1]:
                os.kill(pid, signal.SIGKILL)
                kills += 1
        process.kill()
        process.wait()
        kills += 1
        assert acknowledged <= settled()
        acknowledged = settled()
    final = start()
    assert final.wait(timeout=60) == 0
    assert acknowledged <= settled()
    ok = [(cell.process, cell.workload.key()) for cell in cells() if cell.status == "ok"]
    assert len(ok) == len(set(ok)), "a cell was measured twice"
    # A cell whose worker was killed while the runner lived is a failed row; resuming measured it again.
    assert len(ok) == 120
    sequence = [line.seq for line in read_run_file(path).lines]
    assert len(sequence) == len(set(sequence))
    assert bench.runs.state("run-kill") == "done"


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
