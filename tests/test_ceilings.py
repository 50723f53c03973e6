"""Ceilings: which jobs run in which order, what is counted, what the file holds. On the CPU with tiny sizes, no GPU."""
from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import build_run

from core.cli import ceilings as shell
from core.cli.main import main as run_command
from core.errors import UserError
from core.measure import ceiling_bench, ceilings, device
from core.measure.ceiling_bench import MIB, beyond_cache, working_sets
from core.measure.telemetry import Reading
from core.records import Ceiling, Device, End, Host, Note, RunHeader, RunsFolder, RunWriter, Software, read_run_file


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and times for two shared cores; the order and the arithmetic stay."""
    monkeypatch.setattr(ceiling_bench, "_SIZES", {"cpu": (64 * 1024, 256 * 1024)})
    monkeypatch.setattr(ceiling_bench, "_GEMM_SIZES", {"cpu": (32, 64)})
    monkeypatch.setattr(ceiling_bench, "_SAMPLE_MS", {"cpu": 0.05, "cuda": 0.05})
    monkeypatch.setattr(ceiling_bench, "SUSTAINED_S", 0.05)
    monkeypatch.setattr(ceiling_bench, "CHUNK_S", 0.01)
    monkeypatch.setattr(ceiling_bench, "SAMPLES", 3)


def cpu() -> device.Found:
    return device.Found("cpu", Device("cpu", "Test CPU", "0" * 32), Host(), Software("3.11", "2.13"), None)


def gpu(capability: str = "7.5") -> device.Found:
    made = Device("cuda", "Tesla T4", "1" * 32, capability, 40, l2_bytes=4 * MIB)
    return device.Found("cuda:0", made, Host(), Software("3.11", "2.13"), None)


# --- what is measured ------------------------------------------------------------------------------------------------


def test_a_cpu_has_bandwidths_products_and_gathers_and_no_launches(tiny: None) -> None:
    found = ceiling_bench.measure_ceilings(cpu(), None, 30.0)
    names = [(one.metric, one.precision) for one in found]
    assert names == [
        *[("copy_by_size", None)] * 3, ("copy", None), *[("read_by_size", None)] * 3, ("read", None),
        ("gemm", "fp32"), ("gemm", "bf16"), ("gather_index_select", None), ("gather_grid_sample_4d", None),
        ("gather_grid_sample_5d", None), ("gemm_sustained", "fp32"),
    ]
    assert {one.unit for one in found} == {"GB/s", "TFLOPS"}
    for one in found:
        ordered = sorted(one.samples)
        middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        assert one.value == pytest.approx(middle, rel=1e-5), one.metric
        assert one.value > 0
        assert one.clock_mhz is None
        assert one.limited_by is None


def test_a_spent_budget_leaves_jobs_out_and_says_which(tiny: None) -> None:
    said: list[str] = []
    assert ceiling_bench.measure_ceilings(cpu(), None, 0.0, said.append) == []
    assert len(said) == 4
    assert said[0].startswith("left out: copy and read bandwidth, since")


def test_a_sweep_gives_a_tenth_of_its_budget_and_two_minutes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[float] = []
    monkeypatch.setattr(ceiling_bench, "measure_ceilings", lambda found, nvml, seconds, *rest: budgets.append(seconds))
    for sweep_budget_s in (None, 60.0, 600.0, 36_000.0):
        ceiling_bench.quick_ceilings(cpu(), None, sweep_budget_s)
    assert budgets == [120.0, 6.0, 60.0, 120.0]


def test_a_job_that_fails_is_left_out_and_the_rest_is_measured(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(bench: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 4.00 GiB")

    monkeypatch.setattr(ceiling_bench, "_bandwidths", no_memory)
    said: list[str] = []
    found = ceiling_bench.measure_ceilings(cpu(), None, 30.0, said.append)
    assert found[0].metric == "gemm"
    assert said == ["left out: copy and read bandwidth (out of host memory: tried to allocate 4.00 GiB)"]


def test_precision_settings_are_those_of_before_afterwards(tiny: None) -> None:
    before = ceiling_bench.precision.read_back()
    ceiling_bench.measure_ceilings(cpu(), None, 30.0)
    assert ceiling_bench.precision.read_back() == before


# --- arithmetic ------------------------------------------------------------------------------------------------------


def test_working_sets_are_powers_of_two_within_a_quarter_of_the_free_memory() -> None:
    assert working_sets(1024, 8192, None) == [1024, 2048, 4096, 8192]
    assert working_sets(1024, 8192, 16_000) == [1024, 2048]
    assert working_sets(1024, 8192, 100) == []


def test_device_memory_is_told_by_working_sets_of_eight_times_the_cache() -> None:
    sizes = [2**n * MIB for n in range(8)]  # 1 to 128 MiB
    assert beyond_cache(sizes, 4 * MIB) == [32 * MIB, 64 * MIB, 128 * MIB]
    assert beyond_cache(sizes, None) == [128 * MIB]
    assert beyond_cache(sizes, 60 * MIB) == [128 * MIB]  # too little memory for more: the best that there is


def test_a_product_counts_two_operations_per_multiply_add() -> None:
    assert ceiling_bench._rates(1000, [1.0, 2.0]) == [2.0, 1.0]  # 2e9 operations in 1 ms and in 2 ms, TFLOP/s


class FakeEvent:
    """A CUDA event on a time line that moves by a millisecond per recorded call."""

    line_ms = 0.0

    def __init__(self, enable_timing: bool) -> None:
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = FakeEvent.line_ms

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.at_ms - self.at_ms


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bench that takes itself for a GPU: events are faked, tensors stay on the CPU."""
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    FakeEvent.line_ms = 0.0
    made = ceiling_bench._Bench(cpu(), None, True, float("inf"), lambda line: None)
    made.kind, made.on_cuda = "cuda", True
    monkeypatch.setattr(ceiling_bench._Bench, "synchronize", lambda self: None)
    monkeypatch.setattr(made, "found", gpu())
    return made


def one_ms() -> None:
    FakeEvent.line_ms += 1.0


def test_a_sample_divides_the_time_between_its_events_by_its_calls(bench: Any) -> None:
    assert bench._sample(one_ms, 4)[0] == 4.0
    assert bench.time(one_ms, samples=3).ms == [1.0, 1.0, 1.0]


def test_the_clock_of_a_ceiling_is_the_median_of_its_readings_and_its_reasons_are_all_of_them(bench: Any) -> None:
    readings = [Reading(1500.0, None, 70.0, None, 4), Reading(1400.0, None, 68.0, None, 0x20), Reading(900.0)]
    found = bench.ceiling("gemm", "TFLOPS", [1.0, 3.0, 2.0], readings, precision="fp32")
    assert found == Ceiling("gemm", 2.0, "TFLOPS", "fp32", (1.0, 3.0, 2.0), clock_mhz=1400.0, power_w=69.0,
                            throttle_bits=0x24)


def test_a_sustained_product_has_a_sample_per_chunk_and_no_pause_between_them(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(100))
    monkeypatch.setattr(ceiling_bench.time, "monotonic", lambda: float(next(now)))
    ms, readings = ceiling_bench._queued(bench, one_ms, 5, end_s=10.0)
    assert set(ms) == {1.0}
    assert len(ms) == len(readings) >= 4
    assert FakeEvent.line_ms == 5 * len(ms)  # every chunk that was queued is counted


def test_points_that_are_over_before_the_next_launch_are_marked(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty calls take 1 ms on the fake line and so does every size: twice that would be a measurement."""
    monkeypatch.setattr(ceiling_bench, "_SIZES", {"cuda": (1024, 2048)})
    monkeypatch.setattr(ceiling_bench, "_available_bytes", lambda bench: None)
    monkeypatch.setattr(ceiling_bench, "_copy", lambda bench, size: one_ms)
    monkeypatch.setattr(ceiling_bench, "_read", lambda bench, size: one_ms)
    found = list(ceiling_bench._bandwidths(bench))
    assert [one.metric for one in found] == ["copy_by_size"] * 2 + ["copy"] + ["read_by_size"] * 2 + ["read"]
    assert {one.limited_by for one in found} == {"launch"}
    assert (found[0].working_set_bytes, found[0].value) == (2048, pytest.approx(2048 / 1e6))


def test_a_turing_card_has_no_tf32_and_its_bf16_is_marked_emulated(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    bench.say = said.append
    monkeypatch.setattr(ceiling_bench, "_GEMM_SIZES", {"cuda": (8,)})
    monkeypatch.setattr(ceiling_bench, "_product", lambda bench, name, size: one_ms)
    found = {one.precision: one for one in ceiling_bench._bursts(bench)}
    assert list(found) == ["fp32", "fp16", "bf16", "fp64"]
    assert {name: one.limited_by for name, one in found.items() if one.limited_by} == {"bf16": "emulation"}
    assert said == ["left out: product tf32 (TF32 needs compute capability 8.0, this GPU has 7.5)"]
    assert list(ceiling_bench._sustained(bench, "bf16")) == []


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_run_file_has_header_ceilings_and_end(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ceilings.main(
        ["--device", "cpu", "--budget", "30s", "--runs", str(tmp_path / "runs"), "--label", "mine", "--json"]
    )
    assert code == 0
    written = json.loads(capsys.readouterr().out)
    assert len(written) == 1
    found = read_run_file(written[0]["file"])
    assert found.problems == ()
    records = [line.record for line in found.lines]
    assert isinstance(records[0], RunHeader)
    assert (records[0].label, records[0].request["command"]) == ("mine", "ceilings")
    assert records[-1] == End("done", at=records[-1].at)
    measured = [record for record in records if isinstance(record, Ceiling)]
    assert len(measured) == written[0]["ceilings"] == 14
    runs = RunsFolder(tmp_path / "runs")
    assert runs.state(written[0]["run_id"]) == "done"
    assert all(isinstance(record, (RunHeader, Ceiling, Note, End)) for record in records)


def test_a_stop_request_ends_it_behind_the_present_ceiling(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunsFolder, "stop_requested", lambda self, run_id: True)
    written = ceilings.measure_to_files("cpu", 30.0, RunsFolder(tmp_path), say=lambda line: None)
    assert (written[0]["state"], written[0]["ceilings"]) == ("stopped", 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--device", "gpu7"], "device 'gpu7'; expected auto, cpu"),
        (["--budget", "soon"], "--budget 'soon'; expected a time"),
        (["--budget", "1s"], "a budget of 1 s; expected at least 5 s for one ceiling; raise --budget"),
        (["--what"], "unrecognized arguments"),
        (["--device", "cpu", "--out", "THERE"], "exists already"),
    ],
)
def test_mistakes_are_one_line_and_code_2(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.jsonl"
    there.touch()
    code = ceilings.main([str(there) if word == "THERE" else word for word in options])
    assert code == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_full_disk_takes_one_line_and_code_2(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: RunWriter, record: object, durable: bool = True) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunWriter, "write", full)
    assert ceilings.main(["--device", "cpu", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "error: run.jsonl cannot be written (No space left on device); expected free space on its disk; make room, "
        "then measure again.\n"
    )


def test_a_gpu_in_use_is_refused_with_its_user_unless_forced(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing:
        def close(self) -> None:
            return None

    found = device.Found("cpu", cpu().device, Host(), Software("3.11", "2.13"), "gpu-aaaa")
    monkeypatch.setattr(ceilings.Nvml, "open", classmethod(lambda cls: Nothing()))
    monkeypatch.setattr(device, "board_users", lambda nvml: {"aaaa": "pid 7 with 3.0 GiB"})
    monkeypatch.setattr(device, "find", lambda asked, nvml: found)
    with pytest.raises(UserError, match="the GPU is in use"):
        ceilings.measure_to_files("auto", 30.0, RunsFolder(tmp_path), say=lambda line: None)


def test_every_visible_gpu_gets_a_file_of_its_own_found_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = [{"device": f"{device.BOARD}{digit * 32}", "name": "Tesla T4", "uuid_hash": digit * 32} for digit in "ab"]
    asked: list[str] = []
    monkeypatch.setattr(device, "visible_devices", lambda nvml: boards)
    monkeypatch.setattr(ceilings, "_one_file", lambda name, *rest: asked.append(name) or {})
    assert len(ceilings.measure_to_files("all", 1.0, RunsFolder(tmp_path), say=lambda line: None)) == 2
    assert asked == ["board:" + "a" * 32, "board:" + "b" * 32]
    with pytest.raises(UserError, match="one file for each device"):
        ceilings.measure_to_files("all", 1.0, RunsFolder(tmp_path), tmp_path / "one.jsonl")


# --- boards ----------------------------------------------------------------------------------------------------------


def test_a_board_is_found_by_its_id_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    order = ["b" * 32, "a" * 32]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(device, "cuda_uuid", lambda index: None)
    monkeypatch.setattr(device, "cuda_device", lambda index, uuid, nvml: Device("cuda", "Tesla T4", order[index]))
    monkeypatch.setattr(device, "software", lambda driver: Software("3.11", "2.13"))
    assert device.find("board:" + "a" * 32, None).torch_name == "cuda:1"
    order.reverse()
    assert device.find("board:" + "a" * 32, None).torch_name == "cuda:0"
    assert [board["device"] for board in device.visible_devices(None)] == [f"board:{one}" for one in order]
    with pytest.raises(UserError, match="no visible GPU has the id cccc"):
        device.find("board:" + "c" * 32, None)


# --- in the shell ----------------------------------------------------------------------------------------------------


def test_the_shell_marks_what_is_beyond_its_peak_by_the_rule_of_the_quarantine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = build_run(tmp_path / "t4.jsonl", "t4", [], ceilings=[
        Ceiling("copy", 400.0, "GB/s", samples=(390.0, 400.0, 410.0), working_set_bytes=2**30),  # data sheet: 320
        Ceiling("copy_by_size", 900.0, "GB/s", working_set_bytes=2**20),  # the L2: no peak of the memory
        Ceiling("gemm", 8.0, "TFLOPS", "fp32", clock_mhz=1590.0),  # data sheet: 8.1 at 1590 MHz
        Ceiling("launch_floor", 6.0, "us", samples=(5.0, 6.0, 7.0)),
    ], extra_records=[Note("ceilings", "left out: gathers")])
    answer = shell._answer(path, {"run_id": "r", "state": "done"})
    assert answer["gpu_key"] == "t4"
    assert [bool(row["beyond_peak"]) for row in answer["ceilings"]] == [True, False, False, False]
    assert [row["best"] for row in answer["ceilings"]] == [410.0, 900.0, 8.0, 5.0]  # of a time the lowest is best
    assert answer["left_out"] == ["left out: gathers"]
    shell._show(answer, tmp_path)
    shown = capsys.readouterr().out
    assert "copy reached 400 GB/s on Tesla T4; expected at most 336" in " ".join(shown.split())
    assert "Left out: gathers." in shown


def test_the_command_tells_a_mistake_in_one_line_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shell, "_measure", lambda options, quiet: pytest.fail("it was started"))
    assert run_command(["ceilings", "--device", "gpu7"]) == 2
    assert run_command(["ceilings", "--budget", "soon"]) == 2
    assert run_command(["ceilings", "--budget", "1s"]) == 2
    assert capsys.readouterr().err.count("error: ") == 3


def test_a_measuring_process_that_fails_gives_its_last_line_and_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shell, "_measure", lambda options, quiet: (2, "", "error: the GPU is in use (pid 7)"))
    assert run_command(["ceilings", "--json"]) == 2
    monkeypatch.setattr(shell, "_measure", lambda options, quiet: (-9, "", ""))
    assert run_command(["ceilings"]) == 1
    assert capsys.readouterr().err == (
        "error: the GPU is in use (pid 7)\nerror: the measuring process ended with code -9\n"
    )
