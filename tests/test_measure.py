"""Clocks, order and stop rule with a fake clock; then one real sweep on the CPU, small enough for a test."""
from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.measure import execution, reasons, worker
from core.measure.plan import Effort
from core.measure.timing import (
    STOP_BUDGET,
    STOP_COUNT,
    STOP_MEDIAN,
    StageTimer,
    is_flat,
    median_half_width,
    stop_reason,
    time_cell,
)
from core.records import Cell, Note, RunFile, read_run_file
from core.trackers import registry
from core.trackers.stages import OTHER
from core.trackers.tracker import Tracker

ROOT = Path(__file__).resolve().parent.parent


class FakeClock:
    """Host time that only moves when told; a device time line that ends `queue_ms` behind the host."""

    def __init__(self, device_timeline: bool, log: list[str]) -> None:
        self.device_timeline, self.log = device_timeline, log
        self.host_ms = 0.0
        self.device_ms = 0.0
        self.reused = 0

    def now_ms(self) -> float:
        return self.host_ms

    def synchronize(self) -> None:
        self.log.append("sync")
        self.host_ms = max(self.host_ms, self.device_ms)

    def mark(self) -> float:
        return self.device_ms if self.device_timeline else self.host_ms

    def between_ms(self, first: float, second: float) -> float:
        return second - first

    def reuse(self, marks: list[Any]) -> None:
        self.reused += len(marks)

    def work(self, host_ms: float, device_ms: float = 0.0) -> None:
        self.host_ms += host_ms
        self.device_ms = max(self.device_ms, self.host_ms) + device_ms


EFFORT = Effort(warmup_s=0.05, sample_s=0.1, min_repetitions=3, max_repetitions=50, half_width=0.02)


def test_order_is_first_call_warmup_check_then_repetitions_each_with_one_reading_outside() -> None:
    log: list[str] = []
    clock = FakeClock(True, log)
    durations = iter([100.0, 20.0, 20.0, 20.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0])

    def call() -> None:
        log.append("call")
        clock.work(1.0, next(durations) - 1.0)

    def read() -> str:
        log.append("read")
        return "reading"

    timing = time_cell(call, clock, EFFORT, StageTimer(clock), read, lambda: log.append("check"))
    assert timing.first_call_ms == 100
    assert timing.warmup_ms == (20, 20, 20)  # the first time that 50 ms have passed
    assert timing.wall_ms[:3] == (10, 11, 12)
    assert log[:12] == ["sync", "call", "sync", *["sync", "call", "sync"] * 3]
    assert log[12] == "check"
    assert log[13:21] == ["sync", "call", "sync", "read", "sync", "call", "sync", "read"]
    assert timing.readings == ("reading",) * len(timing.wall_ms)


def test_event_time_is_the_streams_and_wall_time_the_hosts() -> None:
    clock = FakeClock(True, [])
    timing = time_cell(lambda: clock.work(2.0, 5.0), clock, EFFORT, StageTimer(clock))
    assert timing.event_ms is not None
    assert set(timing.wall_ms) == {7.0}
    assert set(timing.event_ms) == {7.0}  # waiting for the host lies between the two events as well


@pytest.mark.parametrize("on_device", [True, False])
def test_stages_and_other_sum_to_the_total_of_each_repetition(on_device: bool) -> None:
    clock = FakeClock(on_device, [])
    stages = StageTimer(clock)

    def call() -> None:
        with stages("encoder"):
            clock.work(1.0, 2.0)
        clock.work(0.5)
        for _ in range(2):
            with stages("transformer"):
                clock.work(1.0, 1.0)

    timing = time_cell(call, clock, EFFORT, stages)
    total = timing.event_ms if on_device else timing.wall_ms
    assert total is not None
    assert list(timing.stage_ms) == ["encoder", "transformer", OTHER]
    assert timing.stage_calls == {"encoder": 1, "transformer": 2, OTHER: None}
    for i, whole in enumerate(total):
        assert sum(samples[i] for samples in timing.stage_ms.values()) == pytest.approx(whole)
    assert clock.reused == 2 * 3 * (len(total) + 1 + len(timing.warmup_ms)) + 2 * len(total)


def test_nested_stages_are_a_fault_and_not_a_negative_rest() -> None:
    clock = FakeClock(False, [])
    stages = StageTimer(clock)

    def call() -> None:
        with stages("outer"), stages("inner"):
            clock.work(30.0)

    with pytest.raises(ValueError, match="do they nest"):
        time_cell(call, clock, EFFORT, stages)


def test_warmup_goes_on_while_calls_get_faster_and_not_for_ever() -> None:
    clock = FakeClock(False, [])
    durations = iter([40.0, 12.0, 10.0, 9.0, 8.0, 7.0, 6.0, *[5.0] * 60])

    timing = time_cell(lambda: clock.work(next(durations)), clock, EFFORT, StageTimer(clock))
    # The budget of 50 ms is over after the sixth call; flat are the last six once most of them take 5 ms.
    assert timing.warmup_ms == (12, 10, 9, 8, 7, 6, 5, 5, 5, 5, 5)
    assert timing.warmup_flat is True

    slowing = FakeClock(False, [])
    ramp = iter([1.0 + 0.5 * step for step in range(200)])
    timing = time_cell(lambda: slowing.work(next(ramp)), slowing, EFFORT, StageTimer(slowing))
    assert timing.warmup_flat is False
    assert 150 <= sum(timing.warmup_ms) < 165  # given up after three budgets

    steady = FakeClock(False, [])
    timing = time_cell(lambda: steady.work(10.0), steady, EFFORT, StageTimer(steady))
    assert timing.warmup_ms == (10,) * 5  # five calls are the budget; too few to tell a trend, and none is seen
    assert timing.warmup_flat is None


def test_one_slow_call_among_flat_ones_is_no_trend() -> None:
    assert is_flat([10.0, 10.0, 30.0, 10.0, 10.1, 10.0]) is True
    assert is_flat([10.0, 10.1, 10.2, 10.3, 10.4, 10.5]) is False  # 5 % from first to last
    assert is_flat([10.0] * 5) is None


def test_what_is_done_before_each_repetition_lies_outside_its_time() -> None:
    log: list[str] = []
    clock = FakeClock(False, log)

    def flush() -> None:
        log.append("flush")
        clock.work(7.0)

    timing = time_cell(lambda: clock.work(30.0), clock, EFFORT, StageTimer(clock), before_each=flush)
    assert set(timing.wall_ms) == {30.0}
    assert log.count("flush") == len(timing.wall_ms)


def test_one_long_warmup_call_is_enough_and_three_repetitions_are_always_made() -> None:
    clock = FakeClock(False, [])
    timing = time_cell(lambda: clock.work(60_000.0), clock, EFFORT, StageTimer(clock))
    assert len(timing.warmup_ms) == 1
    assert len(timing.wall_ms) == 3
    assert timing.stop_rule == STOP_BUDGET
    assert timing.event_ms is None


def test_the_stop_rule_names_what_ended_the_repetitions() -> None:
    effort = Effort(warmup_s=0, sample_s=10, min_repetitions=6, max_repetitions=8)
    quiet, wild = [100.0, 101, 100, 101, 100, 101], [100.0, 130, 100, 130, 100, 130]
    assert stop_reason(quiet[:5], 1, effort) is None  # too few for an interval
    assert stop_reason(quiet, 1, effort) == STOP_MEDIAN
    assert stop_reason(wild, 1, effort) is None
    assert stop_reason(wild, 10, effort) == STOP_BUDGET
    assert stop_reason([*wild, 100, 130], 1, effort) == STOP_COUNT
    assert stop_reason([100.0, 101], 99, effort) is None  # never below three


def test_the_interval_of_the_median_lies_between_order_statistics() -> None:
    assert median_half_width([1, 2, 3, 4, 5]) is None  # five samples cannot give 95 %
    # six: 1 - 2/64 = 96.9 % between smallest and largest
    assert median_half_width([96, 98, 100, 100, 102, 104]) == pytest.approx((104 - 96) / 2 / 100)
    # nine: ranks 2 and 8, 1 - 2 (1 + 9)/512 = 96.1 %
    assert median_half_width([0, 97, 98, 99, 100, 101, 102, 103, 999]) == pytest.approx((103 - 97) / 2 / 100)
    assert median_half_width([100.0] * 5000) == 0


def test_reasons_carry_no_path_and_stay_on_one_line() -> None:
    home = "/" + "home/ada/tracks/model.py"
    told = reasons.of_error(RuntimeError(f"cannot open {home}: denied\nsecond line"))
    assert told == "RuntimeError: cannot open model.py: denied"
    assert "ada" not in reasons.clean(r"C:\Users\ada\x.py line 3 and ~ada/y.bin")
    assert reasons.clean("3 and/or 4 GB/s") == "3 and/or 4 GB/s"
    assert len(reasons.clean("x" * 5000)) == 300


def test_running_out_of_memory_is_told_apart_from_other_errors() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    error = OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of ...")
    assert reasons.out_of_memory(error, "cuda") == "out of GPU memory: tried to allocate 20.00 GiB"
    assert reasons.out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"), "cpu") is not None
    assert reasons.out_of_memory(RuntimeError("shapes differ"), "cuda") is None
    assert reasons.poisons_process(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not reasons.poisons_process(RuntimeError("shapes differ"))


# --- a real sweep ----------------------------------------------------------------------------------------------------

TINY = ["--tracker", "local4d:small", "--frames", "3", "--resolution", "32", "--points", "4", "--device", "cpu"]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "core.measure", "run", "--runs", str(folder), *options], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two threads that share a busy core take ten times as long
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFile, Path, str]:
    folder = tmp_path_factory.mktemp("sweep")
    out = folder / "q.jsonl"
    process = start(folder, *TINY, "--precision", "fp32", "bf16", "tf32", "--ops", "all", "--out", str(out))
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    return read_run_file(out), out, stdout


def cells_of(found: RunFile) -> dict[str, Cell]:
    cells = [line.record for line in found.lines if isinstance(line.record, Cell)]
    return {cell.workload.setting.precision: cell for cell in cells}


def test_a_real_sweep_writes_a_valid_file_with_a_row_per_precision(swept: tuple[RunFile, Path, str]) -> None:
    found, _, stdout = swept
    assert not found.problems
    lines = [line for line in found.lines  # a busy test machine adds a warning
             if not (isinstance(line.record, Note) and line.record.event == "warning")]
    assert [line.kind for line in lines] == ["run", "note", *["note", "cell"] * 3, "end"]
    cells = cells_of(found)
    assert {name: cell.status for name, cell in cells.items()} == {"fp32": "ok", "bf16": "ok", "tf32": "unsupported"}
    assert cells["tf32"].reason == "a CPU has no TF32"
    assert "python -m core ingest q.jsonl" in stdout


def test_a_real_cell_has_samples_and_all_stages_with_their_work(swept: tuple[RunFile, Path, str]) -> None:
    expected = {*registry.TRACKERS["local4d"].stages, OTHER}
    for name in ("fp32", "bf16"):
        cell = cells_of(swept[0])[name]
        assert len(cell.wall_ms) >= 3
        assert cell.first_call_ms is not None
        assert cell.event_ms is None
        assert {stage.name for stage in cell.stages} == expected
        assert cell.stages[-1].name == OTHER
        for i, whole in enumerate(cell.wall_ms):
            parts = [stage.wall_ms[i] for stage in cell.stages if stage.wall_ms is not None]
            assert math.fsum(parts) == pytest.approx(whole, abs=1e-4)
        assert sum(stage.flops or 0 for stage in cell.stages) > 10**8
        assert cell.peak_bytes is None  # a CPU keeps no honest account


def test_a_real_cell_has_an_op_table_that_agrees_with_the_counted_work(swept: tuple[RunFile, Path, str]) -> None:
    cell = cells_of(swept[0])["fp32"]
    assert cell.ops is not None
    assert cell.coverage is not None
    assert cell.coverage > 0.9
    convolutions = [op for op in cell.ops if op.op == "aten::conv2d"]
    assert {op.stage for op in convolutions} == {"encoder", "correlation_encoder", "cost_volume"}
    assert all(op.launches is None and not op.kernels and op.layout for op in convolutions)
    counted = sum(stage.flops or 0 for stage in cell.stages)
    assert sum(op.flops or 0 for op in cell.ops) == pytest.approx(counted, rel=0.01)
    assert "aten::convolution" not in {op.op for op in cell.ops}  # folded into conv2d
    for stage in cell.stages:  # copies that a reshape makes are in both
        in_table = sum(op.bytes or 0 for op in cell.ops if op.stage == stage.name)
        assert in_table == pytest.approx(stage.bytes, rel=0.04), stage.name


def test_what_was_set_is_recorded_with_each_cell(swept: tuple[RunFile, Path, str]) -> None:
    cells = cells_of(swept[0])
    assert cells["bf16"].execution_path["autocast"] == "bfloat16"
    assert cells["fp32"].execution_path["autocast"] is None
    assert cells["fp32"].execution_path["finite_output"] is True
    header = swept[0].header
    assert header is not None
    assert header.settings["threads"] >= 1
    assert header.software.torch.startswith("2.")


def test_the_file_names_no_host_no_user_and_no_folder(swept: tuple[RunFile, Path, str]) -> None:
    text = swept[1].read_text()
    for word in (socket.gethostname(), str(ROOT), str(swept[1].parent), os.path.expanduser("~") + "/"):
        assert word not in text


def test_killing_the_runner_ends_its_worker_and_resuming_repeats_no_cell(tmp_path: Path) -> None:
    process = start(tmp_path, *TINY, "--precision", "fp32", "bf16", "--ops", "none", "--run-id", "killed-run-1")
    path = tmp_path / "killed-run-1" / "run.jsonl"
    try:
        deadline = time.monotonic() + 60
        while not (path.exists() and b'"kind":"cell"' in path.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(workers) == 1
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{workers[0]}/cmdline").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{workers[0]}/cmdline").exists(), "the worker outlived its parent"

    done = read_run_file(path)
    before = [line.record.workload.key() for line in done.lines if isinstance(line.record, Cell)]
    assert before
    again = start(tmp_path, "--resume", str(path))
    _, stderr = again.communicate(timeout=120)
    assert again.returncode == 0, stderr
    lines = read_run_file(path).lines
    after = [line.record.workload.key() for line in lines if isinstance(line.record, Cell)]
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 2
    assert json.loads(path.read_text().splitlines()[-1])["state"] == "done"
    assert [line.seq for line in lines] == sorted({line.seq for line in lines})


@pytest.mark.parametrize(("wall", "event", "busy", "ok", "said"), [
    (20.2, 20.1, 20.0, True, "clocks agree"), (20.0, 20.1, 20.0, False, "out of order"),
    (20.2, 20.0, 20.1, False, "out of order"), (30.0, 29.0, 20.0, False, "more than 5 % apart"),
    (20.0, 20.0, None, False, "saw no kernel"),
])
def test_three_clocks_must_be_in_order_and_agree_on_one_long_product(
    wall: float, event: float, busy: float | None, ok: bool, said: str
) -> None:
    told = worker.agreement_of_clocks(wall, event, busy)
    assert (told["ok"], told["wall_ms"], told["kernel_busy_ms"]) == (ok, wall, busy)
    assert said in told["text"]


def test_a_profiled_pass_that_saw_no_device_work_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a teardown of CUPTI every other trace is blind (seen on an H200 with torch 2.11)."""
    kernel = {"ph": "X", "cat": "kernel", "ts": 0.0, "dur": 2000.0, "name": "gemm", "args": {"correlation": 1}}
    traces = iter([([], 9.0), ([kernel], 3.0), ([], 9.0), ([], 9.0), ([], 9.0)])
    monkeypatch.setattr(worker.profile, "record", lambda *_, **__: next(traces))
    blind = object.__new__(worker.Worker)
    blind.on_cuda, blind.clock, blind._profiler_warm = True, FakeClock(True, []), True
    run = execution.Arranged(Tracker(), lambda: None, lambda: None, has_stages=False)
    told = blind._profile({"profile": True}, Tracker(), run, None, lambda *_: None)
    assert told.fields == {"kernel_busy_ms": 2.0, "profiled_wall_ms": 3.0}
    told = blind._profile({"profile": True}, Tracker(), run, None, lambda *_: None)
    assert told.fields == {}
    assert "no work of the device" in told.notes["profile"]
