"""What a sweep will measure: options to a request, a request to cells in their order, rough predictions."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import UserError
from core.measure import plan
from core.measure.plan import FOUNDING_SIZE, Effort, RoughRate, Size, SweepRequest, add_sweep_options, request_from
from core.records import PRECISIONS
from core.trackers.registry import Estimate

ROOT = Path(__file__).resolve().parent.parent


def request(*options: str) -> SweepRequest:
    parser = argparse.ArgumentParser()
    add_sweep_options(parser)
    return request_from(parser.parse_args(options))


def error(*options: str) -> str:
    with pytest.raises(UserError) as caught:
        request(*options)
    return str(caught.value)


def test_quick_is_one_small_size_in_five_precisions_and_one_process() -> None:
    cells = plan.expand(request())
    assert {cell.workload.setting.precision for cell in cells} == set(PRECISIONS)
    (size,) = {cell.size for cell in cells}
    assert size.frames <= 8
    assert max(size.height, size.width) <= 128
    assert len(cells) == 5
    assert {cell.process for cell in cells} == {0}


def test_standard_varies_one_size_at_a_time_around_the_founding_size_in_three_processes() -> None:
    asked = request("--preset", "standard")
    assert asked.sizes == (
        FOUNDING_SIZE, Size(24, 256, 256, 256), Size(47, 384, 384, 256), Size(47, 256, 256, 1024),
    )
    assert len(plan.expand(asked)) == 2 * 4 * 5 * 3


def test_careful_runs_in_five_processes_and_stops_at_half_a_percent() -> None:
    asked = request("--preset", "careful")
    assert (asked.processes, asked.effort.half_width) == (5, 0.005)


def test_given_sizes_are_combined_and_the_preset_fills_in_its_centre() -> None:
    asked = request("--preset", "standard", "--frames", "24", "47", "--points", "64,256")
    assert [str(size) for size in asked.sizes] == [
        "24f 256x256 64p", "24f 256x256 256p", "47f 256x256 64p", "47f 256x256 256p",
    ]


def test_star_varies_one_size_at_a_time_around_the_first_values() -> None:
    asked = request("--star", "--frames", "47", "24", "96", "--resolution", "256", "384", "512",
                    "--points", "256", "64", "1024")
    assert len(asked.sizes) == 7
    assert asked.centre == FOUNDING_SIZE
    assert Size(24, 256, 256, 256) in asked.sizes
    assert Size(24, 384, 384, 256) not in asked.sizes


def test_a_resolution_of_two_numbers_is_height_times_width() -> None:
    assert request("--resolution", "256x384").sizes[0] == Size(8, 256, 384, 32)


def test_order_is_random_by_seed_and_blocked_by_process_and_size() -> None:
    options = ("--frames", "8", "16", "24", "--tracker", "local4d:small", "local4d:base", "--processes", "2")
    first, again = plan.expand(request(*options)), plan.expand(request(*options))
    assert first == again
    assert first != plan.expand(request(*options, "--seed", "1"))
    assert [cell.process for cell in first] == sorted(cell.process for cell in first)
    blocks = [(cell.process, cell.workload.work.key()) for cell in first]
    assert all(blocks[i : i + 5] == [blocks[i]] * 5 for i in range(0, len(blocks), 5))
    assert len({cell.key for cell in first}) == len(first) == 2 * 2 * 3 * 5


def test_op_tables_are_wanted_for_the_centre_of_the_first_process_only() -> None:
    cells = plan.expand(request("--preset", "standard", "--precision", "fp32", "--tracker", "local4d:base"))
    assert [(cell.process, cell.size) for cell in cells if cell.with_ops] == [(0, FOUNDING_SIZE)]
    assert not any(cell.with_ops for cell in plan.expand(request("--ops", "none")))
    assert all(cell.with_ops for cell in plan.expand(request("--ops", "all")))


def test_a_request_survives_the_header_of_a_run_file() -> None:
    asked = request("--preset", "standard", "--budget", "10m", "--label", "a T4 at home")
    assert SweepRequest.from_json(json.loads(json.dumps(asked.to_json()))) == asked


def test_a_foreign_header_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="does not say what was asked for"):
        SweepRequest.from_json({"trackers": 3})


def test_only_the_base_name_of_a_video_enters_the_header(tmp_path: Path) -> None:
    video = tmp_path / "clip.mp4"
    video.write_bytes(b"x")
    assert request("--video", str(video)).to_json()["video"] == "clip.mp4"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--precision", "fp31"], "did you mean fp32"),
        (["--tracker", "locl4d"], "local4d"),
        (["--tracker", "local4d:smal"], "small"),
        (["--resolution", "250"], "use 248x248"),
        (["--resolution", "256x"], "whole number"),
        (["--frames", "nan"], "whole number"),
        (["--points", "0"], "from 1"),
        (["--precision", ","], "the sweep is empty"),
        (["--execution", "warp"], "eager"),
        (["--budget", "0m"], "a time such as"),
        (["--budget", "nan"], "a time such as"),
        (["--device", "gpu0"], "cuda:N"),
        (["--video", "no/such.mp4"], "no video file 'such.mp4'"),
        (["--frames", *map(str, range(2, 200)), "--points", *map(str, range(1, 200))], "at most 20000"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_what_to_do(options: list[str], told: str) -> None:
    message = error(*options)
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("45", 45), ("2min", 120)])
def test_a_time_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert plan.parse_duration_s(text, "budget") == seconds


def test_a_prediction_is_the_largest_of_arithmetic_memory_and_launches() -> None:
    rate = RoughRate("card", {"fp32": 1e12, "fp16": 1e14}, bytes_per_s=1e11, launch_s=1e-5)
    work = Estimate(flops=2 * 10**12, bytes=10**11, launches=3000, peak_bytes=1)
    assert rate.pass_s(work, "fp32") == pytest.approx(2.0)  # 2e12 / 1e12
    assert rate.pass_s(work, "fp16") == pytest.approx(1.0)  # 1e11 bytes / 1e11 per s
    assert rate.pass_s(work, "tf32") is None
    small = Estimate(flops=1, bytes=1, launches=3000, peak_bytes=1)
    assert rate.pass_s(small, "fp32") == pytest.approx(0.03)  # 3000 launches


def test_a_cell_takes_first_call_warmup_and_repetitions() -> None:
    effort = Effort(warmup_s=1.0, sample_s=3.0, min_repetitions=10, max_repetitions=100)
    assert plan.cell_s(0.1, effort) == pytest.approx(0.1 + 1.0 + 1.0)  # ten repetitions fit into the budget
    assert plan.cell_s(5.0, effort) == pytest.approx(5.0 + 5.0 + 15.0)  # never fewer than three


def test_an_unknown_card_gets_no_prediction() -> None:
    assert plan.gpu_rate("NVIDIA Imaginary 9000") is None
    assert all(cell.predicted_s is None for cell in plan.expand(request(), None))


def test_the_plan_command_prints_a_table_or_json_and_loads_no_torch() -> None:
    code = (
        "import sys; from core.measure.__main__ import main; "
        "code = main(['plan', '--preset', 'standard', '--device', 'cpu', '--json']); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert len(shown["cells"]) == 120
    assert "rough" in shown["prediction"]
    asked = request()
    table = plan.plan_table(asked, plan.expand(asked, plan.cpu_rate(2)), plan.cpu_rate(2))
    assert table.splitlines()[-1].startswith("5 cells in 1 process, about ")
