"""The work counter gives numbers that can be checked by hand, and the founding case without arithmetic."""
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from core.errors import UserError
from core.measure import cost, worker
from core.measure.cost import OpWork, WorkCount, count, count_tracker, op_work
from core.measure.op_formulas import MAYBE_VIEWS, NOTHING, UNKNOWN, base_name
from core.records import Cell, SettingKey, Workload, read_run_file
from core.trackers import registry
from core.trackers.local4d import build

torch.set_num_threads(2)
ROOT = Path(__file__).resolve().parent.parent


def counted(function: Any, *arguments: torch.Tensor) -> WorkCount:
    return count(lambda: function(*arguments))


# --- tiny ops, by hand


def test_a_matrix_product_is_two_flops_for_each_multiply_add() -> None:
    work = counted(torch.mm, torch.ones(2, 3), torch.ones(3, 5))
    assert (work.flops, work.other_flops, work.launches) == (2 * 2 * 3 * 5, 0, 1)
    assert work.bytes == 4 * (6 + 15 + 10)


def test_a_linear_layer_counts_its_bias_apart() -> None:
    work = counted(F.linear, torch.ones(2, 4, 3), torch.ones(5, 3), torch.ones(5))
    assert (work.flops, work.other_flops) == (2 * 8 * 3 * 5, 8 * 5)
    assert work.bytes == 4 * (24 + 15 + 5 + 40)


def test_a_convolution_counts_its_real_output_size() -> None:
    # 8x8, kernel 3, stride 2, padding 1: 4x4 places
    work = count(lambda: F.conv2d(torch.ones(2, 3, 8, 8), torch.ones(6, 3, 3, 3), torch.ones(6), 2, 1))
    work = count_of("aten::convolution", work)
    assert (work.flops, work.other_flops) == (2 * (2 * 6 * 16) * (3 * 9), 2 * 6 * 16)
    assert work.bytes == 4 * (2 * 3 * 64 + 6 * 27 + 6 + 2 * 6 * 16)


def test_groups_and_transposition_change_the_flops_of_a_convolution() -> None:
    grouped = count(lambda: F.conv2d(torch.ones(1, 4, 5, 5), torch.ones(8, 2, 3, 3), None, 1, 1, 1, 2))
    assert grouped.flops == 2 * (8 * 25) * (2 * 9)
    # transposed: each of the 3x3 input places meets 4 in x 2 out x 2x2
    transposed = count(lambda: F.conv_transpose2d(torch.ones(1, 4, 3, 3), torch.ones(4, 2, 2, 2), stride=2))
    assert transposed.flops == 2 * 9 * 4 * 2 * 4


@pytest.mark.parametrize(("changes", "counted_again"), [
    ({"precision": "tf32"}, False), ({"precision": "default"}, False), ({"cudnn_benchmark": True}, False),
    ({"handicap": "host_cores=1"}, False), ({"precision": "fp16"}, True),
    ({"precision": "fp16", "execution": "cast"}, True), ({"sdp_backend": "math"}, True),
    ({"memory_format": "channels_last"}, True),
])
def test_work_is_counted_apart_for_each_setting_that_runs_other_ops(
    changes: dict[str, Any], counted_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[str] = []

    def counting(forward: Any, model: Any) -> str:
        counts.append(forward)
        return forward

    monkeypatch.setattr(worker, "count", counting)
    subject = worker.Worker("cpu")
    plain = Workload(registry.work_key("local4d:small", 4, 64, 64, 4), SettingKey("fp32"))
    other = replace(plain, setting=replace(plain.setting, **changes))
    for workload, forward in ((plain, "first"), (other, "second"), (plain, "third")):
        subject._count(workload, None, forward, lambda phase, done: None)
    assert counts == (["first", "second"] if counted_again else ["first"])
    if changes == {"precision": "fp16", "execution": "cast"}:  # nor from autocast, whose conversions it has not
        subject._count(replace(plain, setting=SettingKey("fp16")), None, "autocast", lambda phase, done: None)
        assert counts[-1] == "autocast"


def test_an_addition_reads_two_inputs_and_writes_one() -> None:
    work = counted(torch.add, torch.ones(10), torch.ones(10))
    assert (work.flops, work.other_flops, work.bytes, work.launches) == (0, 10, 4 * 30, 1)


def test_the_same_input_twice_is_read_once_and_an_expanded_axis_once() -> None:
    x = torch.ones(10)
    assert counted(torch.mul, x, x).bytes == 4 * 20
    assert counted(torch.add, torch.ones(1, 10).expand(5, 10), torch.ones(5, 10)).bytes == 4 * (10 + 50 + 50)


def test_two_parts_of_one_storage_are_both_read() -> None:
    x = torch.ones(2, 10)
    assert count(lambda: x[0] + x[1]).bytes == 4 * 30


def test_an_in_place_op_reads_and_writes_and_a_fill_only_writes() -> None:
    x = torch.ones(10)
    assert count(lambda: x.add_(1)).bytes == 4 * 20
    assert count(lambda: x.fill_(3)).bytes == 4 * 10
    assert count(lambda: x.copy_(torch.ones(10))).bytes - count(lambda: torch.ones(10)).bytes == 4 * 20


def test_views_and_bare_allocations_are_free() -> None:
    x = torch.ones(4, 6)
    work = count(lambda: (x.t(), x.view(24), x[1:3], x.unsqueeze(0).expand(3, 4, 6), x.unbind(0), torch.empty(9)))
    assert (work.bytes, work.launches, work.other_flops) == (0, 0, 0)


def test_half_precision_moves_half_the_bytes() -> None:
    assert counted(torch.add, torch.ones(10, dtype=torch.bfloat16), torch.ones(10, dtype=torch.bfloat16)).bytes == 60


def test_a_gather_reads_what_it_picks() -> None:
    index = torch.tensor([1, 3])
    assert counted(lambda x: x.index_select(0, index), torch.ones(100, 8)).bytes == 4 * 16 + 8 * 2 + 4 * 16


def test_grid_sample_reads_four_neighbours_for_each_place_but_no_more_than_the_image() -> None:
    image, grid = torch.ones(1, 2, 50, 50), torch.zeros(1, 3, 1, 2)
    work = count(lambda: F.grid_sample(image, grid, align_corners=False))
    assert work.bytes == 4 * (4 * 2 * 3 + 6 + 2 * 3)
    # 3 places: 2 x (3 unnormalise, floor, remainder) + 4 corner weights; 6 values: 4 products, 3 sums
    assert work.other_flops == 3 * 14 + 6 * 7
    small = torch.ones(1, 2, 2, 2)
    assert count(lambda: F.grid_sample(small, grid, align_corners=False)).bytes == 4 * (8 + 6 + 6)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_attention_counts_once_whatever_runs_it(device: str) -> None:
    query, key = torch.ones(2, 3, 5, 8, device=device), torch.ones(2, 3, 7, 8, device=device)
    bias = torch.ones(1, 3, 5, 7, device=device)
    work = count(lambda: F.scaled_dot_product_attention(query, key, key.clone(), attn_mask=bias))
    work = count_of("aten::scaled_dot_product_attention", work)
    assert work.launches == 1
    assert work.flops == 2 * (2 * 3 * 5 * 7) * (8 + 8)
    assert work.other_flops == (2 * 3 * 5 * 7) * 7  # softmax 5, scale 1, bias 1
    assert work.bytes == 4 * (2 * 240 + 2 * 2 * 3 * 7 * 8 + 3 * 5 * 7)


def test_norm_softmax_reduction_and_interpolation_follow_their_formulas() -> None:
    assert count(lambda: F.layer_norm(torch.ones(4, 10), (10,))).other_flops == 8 * 40
    assert count(lambda: torch.softmax(torch.ones(4, 10), -1)).other_flops == 5 * 40
    assert count(lambda: torch.ones(4, 10).sum(dim=1)).other_flops == 40
    enlarged = count(lambda: F.interpolate(torch.ones(1, 1, 2, 2), size=(4, 4), mode="bilinear", align_corners=False))
    assert enlarged.other_flops == 16 * 7


def test_a_3d_convolution_meets_its_filter_at_every_place_of_time_and_space() -> None:
    # 4x8x8, kernel 3, padding 1, stride 2: 2x4x4 places
    work = count(lambda: F.conv3d(torch.ones(1, 2, 4, 8, 8), torch.ones(6, 2, 3, 3, 3), None, 2, 1))
    assert work.flops == 2 * (6 * 2 * 4 * 4) * (2 * 27)


def test_an_einsum_counts_as_the_product_that_it_is() -> None:
    # the 4D correlation of one guess: 49 x 49 pairs of 128 channels, for 3 points
    work = count(lambda: torch.einsum("nic,njc->nij", torch.ones(3, 49, 128), torch.ones(3, 49, 128)))
    assert work.flops == 2 * 3 * 49 * 49 * 128
    assert work.coverage == 1


def test_sampling_in_space_and_time_reads_eight_neighbours() -> None:
    volume, grid = torch.ones(1, 2, 9, 50, 50), torch.zeros(1, 1, 1, 3, 3)
    work = count(lambda: F.grid_sample(volume, grid, align_corners=False))
    assert work.bytes == 4 * (8 * 2 * 3 + 9 + 2 * 3)
    # 3 places: 3 axes x 5, 8 corner weights of 2 products; 6 values: 8 products, 7 sums
    assert work.other_flops == 3 * (15 + 16) + 6 * 15
    nearest = count(lambda: F.grid_sample(volume, grid, mode="nearest", align_corners=False))
    assert (nearest.bytes, nearest.other_flops) == (4 * (2 * 3 + 9 + 2 * 3), 3 * 12)


def test_enlarging_weighs_as_many_places_as_its_mode_says() -> None:
    image = torch.ones(1, 1, 4, 4)
    for mode, flops in (("bilinear", 7), ("bicubic", 31), ("nearest", 0)):
        work = count(lambda mode=mode: F.interpolate(image, size=(8, 8), mode=mode))  # type: ignore[misc]
        assert (work.other_flops, work.bytes) == (64 * flops, 4 * (16 + 64)), mode
    volume = torch.ones(1, 1, 2, 2, 2)
    assert count(lambda: F.interpolate(volume, size=(4, 4, 4), mode="trilinear")).other_flops == 64 * 15


def test_norms_count_their_statistics_whatever_their_groups() -> None:
    x = torch.ones(2, 6, 5, 5)
    assert count(lambda: F.instance_norm(x)).other_flops == 8 * 300
    assert count(lambda: F.group_norm(x, 3)).other_flops == 8 * 300
    assert count(lambda: F.batch_norm(x, torch.zeros(6), torch.ones(6))).other_flops == 4 * 300  # known statistics
    assert count(lambda: F.avg_pool2d(x, 2)).other_flops == 2 * 6 * 4 * 4


def test_a_gated_recurrent_update_is_the_sum_of_its_convolutions_and_gates() -> None:
    state, given = torch.ones(1, 4, 5, 5), torch.ones(1, 2, 5, 5)
    weight = torch.ones(4, 6, 3, 3)

    def update() -> torch.Tensor:
        both = torch.cat([state, given], dim=1)
        keep = torch.sigmoid(F.conv2d(both, weight, padding=1))
        reset = torch.sigmoid(F.conv2d(both, weight, padding=1))
        new = torch.tanh(F.conv2d(torch.cat([reset * state, given], dim=1), weight, padding=1))
        return (1 - keep) * state + keep * new

    work = count(update)
    assert work.flops == 3 * 2 * 100 * 6 * 9
    assert work.other_flops == 100 * (4 + 4 + 1 + 1 + 4)  # two sigmoids, reset * state, tanh, the mix of four steps
    assert work.coverage == 1


def test_attention_under_autocast_moves_half_the_bytes_and_still_counts_once() -> None:
    query = torch.ones(2, 3, 5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        work = count(lambda: F.scaled_dot_product_attention(query, query, query))
    attention = count_of("aten::scaled_dot_product_attention", work)
    assert attention.flops == 2 * (2 * 3 * 5 * 5) * 16
    assert not [op for op in work.ops if op.op in ("aten::bmm", "aten::_softmax")]


def test_reading_one_value_is_a_copy_and_asking_a_fake_tensor_for_its_device_is_nothing() -> None:
    work = count(lambda: torch.ones(3).sum().item())
    assert count_of("aten::_local_scalar_dense", work).launches == 1
    assert work.coverage == 1
    with FakeTensorMode():
        x = torch.ones(4)
        asked = count(lambda: (x + x).device)
    assert (asked.launches, asked.bytes) == (1, 4 * 8)


def test_an_op_without_formula_lowers_coverage_and_is_named() -> None:
    work = count(lambda: (torch.eye(3) + 1).inverse())
    assert any("inv" in op for op in work.unknown_ops)
    assert 0 < work.coverage < 1
    assert next(op for op in work.ops if op.op in work.unknown_ops).other_flops is None


def test_peak_memory_follows_what_is_alive() -> None:
    def forward() -> torch.Tensor:
        a = torch.ones(1000)  # 4,000 bytes
        b = a + 1  # 8,000
        c = b + 1  # 12,000
        del a, b
        return c + 1  # 8,000

    assert count(forward).peak_bytes == 12_000
    x = torch.ones(1000)
    assert count(lambda: x.view(10, 100).t() + 1).peak_bytes == 8_000  # views are no memory of their own


# --- stages and the tracker


@pytest.fixture(scope="module")
def founding() -> dict[str, WorkCount]:
    result = {}
    started = time.process_time()  # other programs on this machine do not count
    for variant in ("small", "base"):
        result[variant] = count_tracker(registry.work_key(f"local4d:{variant}", 47, 256, 256, 256))
    assert time.process_time() - started < 30
    return result


@pytest.mark.parametrize(("variant", "official_tflop"), [("small", 1.47), ("base", 2.05)])
def test_local4d_does_the_work_of_locotrack(
    founding: dict[str, WorkCount], variant: str, official_tflop: float
) -> None:
    assert founding[variant].flops / 1e12 == pytest.approx(official_tflop, rel=0.1)
    assert founding[variant].coverage == 1


def test_the_stage_split_is_that_of_locotrack(founding: dict[str, WorkCount]) -> None:
    tflop = {stage.name: stage.flops / 1e12 for stage in founding["base"].stages}
    assert tflop["encoder"] == pytest.approx(0.89, rel=0.1)
    assert tflop["transformer"] == pytest.approx(0.57, rel=0.1)
    with_64_points = count_tracker(registry.work_key("local4d:base", 47, 256, 256, 64))
    tflop = {stage.name: stage.flops / 1e12 for stage in with_64_points.stages}
    assert with_64_points.flops / 1e12 == pytest.approx(1.18, rel=0.1)
    assert tflop["transformer"] == pytest.approx(0.14, rel=0.1)


@pytest.mark.parametrize("variant", ["small", "base"])
def test_counted_peak_memory_is_the_greater_part_of_what_the_h200_measured(
    founding: dict[str, WorkCount], variant: str
) -> None:
    work = registry.work_key(f"local4d:{variant}", 47, 256, 256, 256)
    measured = [
        line.record.peak_bytes
        for path in sorted((ROOT / "core" / "reference" / "runs").glob("h200-centre*.jsonl.gz"))
        for line in read_run_file(path).lines
        if isinstance(line.record, Cell) and line.record.workload.work == work
        and line.record.workload.setting.precision == "fp32" and line.record.peak_bytes is not None
    ]
    assert measured
    # the rest is what the allocator rounds up and kernels take as workspace
    assert all(0.9 * peak < founding[variant].peak_bytes <= peak for peak in measured)


def test_stages_and_ops_sum_to_the_total(founding: dict[str, WorkCount]) -> None:
    work = founding["small"]
    assert work.stages[-1].name == "other"
    for field in ("flops", "other_flops", "bytes"):
        assert sum(getattr(stage, field) for stage in work.stages) == getattr(work, field)
        assert sum(getattr(op, field) for op in work.ops) == getattr(work, field)
    assert sum(stage.launches for stage in work.stages) == work.launches == sum(op.calls for op in work.ops)
    assert {stage.name: stage.calls for stage in work.stages}["encoder"] == 1
    assert set(work.summary()) == {
        "flops", "other_flops", "bytes", "launches", "stages", "coverage", "unknown_ops", "peak_bytes",
    }


def test_counting_on_meta_equals_counting_real_arithmetic_and_torch_s_own_counter() -> None:
    work = registry.work_key("local4d:small", 3, 32, 40, 5)
    on_meta = count_tracker(work)
    model = build("small")
    inputs = {"video": torch.zeros(1, 3, 32, 40, 3), "queries": torch.ones(1, 5, 3)}
    real = count(lambda: model(**inputs), model)
    assert on_meta.flops == real.flops
    assert (on_meta.bytes, on_meta.launches, on_meta.other_flops) == (real.bytes, real.launches, real.other_flops)
    model.to("meta")
    # on meta, since torch's counter does not know the attention kernel of the CPU
    with FlopCounterMode(display=False) as torch_counter, torch.no_grad():
        model(**{name: value.to("meta") for name, value in inputs.items()})
    assert torch_counter.get_total_flops() == real.flops


def test_inference_mode_is_refused_since_it_hides_copies() -> None:
    def run() -> None:
        with torch.inference_mode():
            torch.ones(2, 3).t().reshape(6)

    with pytest.raises(RuntimeError, match="inference mode"):
        count(run)


def test_an_unknown_tracker_or_size_is_the_user_s_error() -> None:
    good = registry.work_key("local4d:small", 3, 32, 40, 5)
    with pytest.raises(UserError, match="no variant"):
        count_tracker(registry.WorkKey(**{**vars(good), "variant": "tiny"}))
    with pytest.raises(UserError, match="use 32x40"):
        count_tracker(registry.WorkKey(**{**vars(good), "height": 33}))


# --- from shapes alone


def floats(*shapes: Sequence[int]) -> tuple[list[list[int]], list[str]]:
    return [list(shape) for shape in shapes], ["float" if len(shape) else "Scalar" for shape in shapes]


@pytest.mark.parametrize(
    ("op", "shapes", "scalars", "expected"),
    [
        ("aten::mm", [[2, 3], [3, 5]], [], OpWork(60, 0, 4 * 31)),
        ("aten::matmul", [[7, 1, 2, 3], [4, 3, 5]], [], OpWork(2 * 28 * 30, 0, 4 * (42 + 60 + 280))),
        ("aten::linear", [[2, 4, 3], [5, 3], [5]], [], OpWork(240, 40, 4 * (24 + 15 + 5 + 40))),
        ("aten::addmm", [[5], [2, 3], [3, 5]], [], OpWork(60, 10, 4 * (5 + 6 + 15 + 10))),
        ("aten::conv2d", [[2, 3, 8, 8], [6, 3, 3, 3], [], [], [], [], []],
         ["", "", "None", "[2, 2]", "[1, 1]", "[1, 1]", "1"], OpWork(2 * 192 * 27, 0, 4 * (384 + 162 + 192))),
        ("aten::convolution", [[1, 4, 3, 3], [4, 2, 2, 2], [], [], [], [], [], [], []],
         ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"],
         OpWork(2 * 9 * 4 * 8, 0, 4 * (36 + 32 + 72))),
        ("aten::add", [[3, 1], [4], []], ["", "", "1"], OpWork(0, 12, 4 * (3 + 4 + 12))),
        ("aten::add_", [[3, 4], [4], []], ["", "", "1"], OpWork(0, 12, 4 * (12 + 4 + 12))),
        ("aten::lt", [[8], []], ["", "0"], OpWork(0, 8, 4 * 8 + 8)),
        ("aten::gelu", [[8]], [], OpWork(0, 40, 64)),
        ("aten::view", [[8], []], ["", "[2, 4]"], OpWork(0, 0, 0)),
        ("aten::sum", [[4, 5], [], []], ["", "[-1]", "False"], OpWork(0, 20, 4 * 24)),
        ("aten::amax", [[4, 5], [], []], ["", "[0]", "True"], OpWork(0, 20, 4 * 25)),
        ("aten::argmax", [[4, 5], [], []], ["", "-1", "True"], OpWork(0, 20, 4 * 20 + 8 * 4)),
        ("aten::copy_", [[8], [8], []], ["", "", "False"], OpWork(0, 0, 64)),
        ("aten::to", [[8], [], [], []], ["", "5", "False", "False"], OpWork(0, 0, 32 + 16)),
        ("aten::to", [[8], [], [], []], ["", "6", "False", "False"], OpWork(0, 0, 0)),
        ("aten::pad", [[2, 3], [], [], []], ["", "[1, 0]", "constant", ""], OpWork(0, 0, 4 * (6 + 8))),
        ("aten::softmax", [[4, 5], [], []], ["", "-1", ""], OpWork(0, 100, 160)),
        ("aten::grid_sampler", [[1, 2, 50, 50], [1, 3, 1, 2], [], [], []], ["", "", "0", "1", "False"],
         OpWork(0, 84, 4 * (24 + 6 + 6))),
        ("aten::upsample_bilinear2d", [[1, 1, 2, 2], [], [], []], ["", "[4, 4]", "False", ""],
         OpWork(0, 112, 4 * 20)),
        ("aten::scaled_dot_product_attention", [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8], [1, 3, 5, 7]], [],
         OpWork(2 * 210 * 16, 210 * 7, 4 * (480 + 672 + 105))),
        ("aten::avg_pool2d", [[1, 2, 4, 4], [], [], []], ["", "[2, 2]", "[2, 2]", "[0, 0]"], OpWork(0, 32, 4 * 40)),
        ("aten::cat", [[2, 3], [4, 3]], [], OpWork(0, 0, 4 * 36)),
    ],
)
def test_work_from_shapes_alone_by_hand(
    op: str, shapes: list[list[int]], scalars: list[str], expected: OpWork
) -> None:
    assert op_work(op, *floats(*shapes), scalars) == expected


@pytest.mark.parametrize(
    ("op", "shapes", "scalars"),
    [
        ("aten::no_such_op", [[2]], []),
        ("aten::cat", [[], []], ["", "1"]),  # torch.profiler gives no shapes for a list of tensors
        ("aten::conv2d", [[2, 3]], []),
        ("aten::mm", [], []),
        ("", [], []),
    ],
)
def test_what_shapes_do_not_tell_is_unknown_and_never_zero(
    op: str, shapes: list[list[int]], scalars: list[str]
) -> None:
    assert op_work(op, *floats(*shapes), scalars) == UNKNOWN


def test_dtype_names_of_torch_and_of_its_profiler_mean_the_same() -> None:
    for name, size in (("c10::Half", 2), ("torch.bfloat16", 2), ("double", 8), ("long int", 8), ("unsigned char", 1)):
        assert op_work("aten::relu", [[10]], [name], []).bytes == 2 * 10 * size


def test_a_profiled_forward_pass_gets_the_flops_of_the_counter_from_shapes_alone() -> None:
    model = build("small")
    inputs = {"video": torch.zeros(1, 3, 32, 40, 3), "queries": torch.ones(1, 5, 3)}
    expected = count(lambda: model(**inputs), model)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        model(**inputs)
    flops = other_flops = moved = 0
    unknown = set()
    for event in profiler.events():
        if event.cpu_parent is not None or not event.name.startswith("aten::"):
            continue
        scalars = [str(value) for value in getattr(event, "concrete_inputs", [])]
        shapes, dtypes = floats(*event.input_shapes)
        work = op_work(event.name, shapes, dtypes, scalars)
        children = {base_name(child.name) for child in event.cpu_children}
        if base_name(event.name) in MAYBE_VIEWS and not children & {"clone", "copy", "_to_copy"}:
            work = NOTHING  # it was only a view
        if work == UNKNOWN:
            unknown.add(event.name)
            continue
        flops += work.flops or 0
        other_flops += work.other_flops or 0
        moved += work.bytes or 0
    assert flops == expected.flops
    assert other_flops == pytest.approx(expected.other_flops, rel=0.01)
    assert unknown <= {"aten::cat", "aten::stack", "aten::arange"}
    # without the joins, and without the copies inside composed ops
    assert 0.85 * expected.bytes < moved < 1.02 * expected.bytes


def count_of(op: str, work: WorkCount) -> Any:
    """The one OpCount of `op`, told as calls = launches, so that building the inputs does not count."""
    found = [entry for entry in work.ops if entry.op == op]
    assert len(found) == 1
    return _Single(found[0])


class _Single:
    def __init__(self, op: cost.OpCount) -> None:
        self.flops, self.other_flops, self.bytes, self.launches = op.flops, op.other_flops, op.bytes, op.calls
