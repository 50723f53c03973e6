"""The op microscope: ops taken out with their arguments, replayed, tried in other ways; lost time and what is told."""
from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from core.analysis import trials
from core.cli.main import main as shell
from core.errors import UserError
from core.measure import op_alternatives, op_capture, profile
from core.measure.lost_time import FloorRates, floor_rates, most_lost, reproduced
from core.measure.microscope import Microscope, clear_abandoned, main
from core.measure.microscope_table import Looked, clearly_faster, closing_table, summary
from core.measure.op_alternatives import Alternative, Platform, alternatives, own_arithmetic
from core.measure.op_capture import Exemplar, freeze
from core.measure.op_replay import Call, Meter, compare, copied, open_call
from core.measure.op_worker import OpWorker
from core.measure.plan import work_before_a_look
from core.measure.plan_microscope import MicroscopeRequest
from core.measure.run import Signals
from core.measure.timing import HostClock
from core.records import Ceiling, Note, OpTrial, RunsFolder, RunWriter, read_run_file, to_json
from core.trackers import registry
from tests.builders import DEVICES, header, op

CPU = torch.device("cpu")


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exemplar(function: Any, *arguments: Any, **keywords: Any) -> Exemplar:
    return freeze(function, arguments, keywords, ())


# --- taking ops out --------------------------------------------------------------------------------------------------


def test_every_row_of_the_op_table_is_found_among_the_numbered_calls() -> None:
    work = replace(registry.work_key("local4d:small", 2, 32, 32, 2), iterations=1)
    subject = op_capture.build_subject(work, "fp32", CPU, seed=0)
    events, _ = profile.record(subject.call, subject.model, HostClock(), with_shapes=True, on_cuda=False)
    keys = {row.key() for row in profile.read_trace(events, on_cuda=False).ops}
    numbered = op_capture.numbered_calls(subject, HostClock())
    assert keys == set(numbered)
    assert any(key.startswith("aten::conv2d|") for key in keys)


def test_under_autocast_a_call_counts_for_the_op_that_casts_for_it() -> None:
    data, weight = noise(2, 3), noise(4, 3)

    def call() -> None:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            F.linear(data, weight)

    subject = op_capture.Subject(call, None)
    numbered = op_capture.numbered_calls(subject, HostClock())
    key, found = next(iter(numbered.items()))
    assert list(numbered) == ["aten::linear|((2, 3), (4, 3))|('float32', 'float32')|contiguous|('None',)|other"], key
    assert found.dtypes == ("float32", "float32")


def test_copied_arguments_give_the_result_that_the_tracker_had(tmp_path: Path) -> None:
    seen: list[Tensor] = []

    def call() -> None:
        with torch.inference_mode():
            data = noise(2, 4, 6, 6)[:, :, ::2]
            seen.append(F.conv2d(data, noise(5, 4, 3, 3, seed=1), padding=1))
            data.zero_()  # the copy was made before

    subject = op_capture.Subject(call, None)
    numbered = op_capture.numbered_calls(subject, HostClock())
    key = next(key for key in numbered if key.startswith("aten::conv2d"))
    assert "strides(144,36,12,1)" in key
    files, notes = op_capture.copy_calls(subject, {key: numbered[key]}, tmp_path)
    assert notes == {}
    again = open_call(Exemplar.load(files[key]), "fp32", CPU)
    assert again.named["input"].stride() == (144, 36, 12, 1)
    assert torch.equal(again.run(), seen[0])


def test_shared_memory_stays_shared_and_an_expanded_axis_stays_expanded() -> None:
    packed = noise(4, 30)
    query, key = packed[:, :10], packed[:, 10:20]
    kept = exemplar(torch.ops.aten.add.Tensor, query, key)
    assert len(kept.memories) == 1
    (first, second), _ = kept.materialise(CPU)
    assert torch.equal(first, query)
    assert torch.equal(second, key)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    wide = exemplar(torch.ops.aten.relu.default, noise(1, 3).expand(5, 3))
    assert wide.memories[0].numel() == 3
    assert wide.materialise(CPU)[0][0].stride() == (0, 1)


def test_under_autocast_a_replay_starts_from_the_dtypes_of_the_op_table() -> None:
    half = noise(2, 3).bfloat16()
    kept = freeze(torch.ops.aten.linear.default, (half, noise(4, 3).bfloat16()), {}, ("float32", "float32"))
    call = open_call(kept, "bf16", CPU)
    assert {tensor.dtype for tensor in call.tensors.values()} == {torch.float32}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call.run().dtype == torch.bfloat16


# --- alternatives ----------------------------------------------------------------------------------------------------

_MASK = torch.zeros(1, 2, 5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf)
_ATEN = torch.ops.aten
OPS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "conv2d": lambda: (_ATEN.conv2d.default, (noise(15, 6, 9, 9), noise(10, 6, 3, 3), noise(10), [2, 2], [1, 1]), {}),
    "conv2d strided": lambda: (_ATEN.conv2d.default, (noise(3, 9, 9, 6).permute(0, 3, 1, 2), noise(8, 6, 3, 3)), {}),
    "conv2d 1x1": lambda: (_ATEN.conv2d.default, (noise(4, 6, 7, 7), noise(5, 6, 1, 1), noise(5), [2, 2]), {}),
    "conv1d": lambda: (_ATEN.conv1d.default, (noise(4, 6, 20), noise(8, 3, 3), None, [1], [2], [2], 2), {}),
    "conv3d": lambda: (_ATEN.conv3d.default, (noise(3, 2, 4, 5, 6), noise(3, 2, 2, 2, 2)), {}),
    "linear": lambda: (_ATEN.linear.default, (noise(5, 7, 6), noise(9, 6), noise(9)), {}),
    "matmul shared": lambda: (_ATEN.matmul.default, (noise(3, 5, 7, 6), noise(6, 9)), {}),
    "matmul expanded": lambda: (_ATEN.matmul.default, (noise(3, 5, 6), noise(1, 6, 9).expand(3, 6, 9)), {}),
    "matmul grows": lambda: (_ATEN.matmul.default, (noise(1, 5, 6), noise(3, 6, 9)), {}),
    "matmul 4-D": lambda: (_ATEN.matmul.default, (noise(3, 1, 5, 6), noise(3, 4, 6, 9)), {}),
    "bmm": lambda: (_ATEN.bmm.default, (noise(17, 5, 6), noise(17, 6, 9)), {}),
    "attention": lambda: (_ATEN.scaled_dot_product_attention.default,
                          (noise(9, 2, 5, 12), noise(9, 2, 5, 12, seed=1), noise(9, 2, 5, 12, seed=2), _MASK), {}),
    "attention causal": lambda: (_ATEN.scaled_dot_product_attention.default,
                                 (noise(2, 2, 5, 8), noise(2, 2, 5, 8, seed=1), noise(2, 2, 5, 8, seed=2), None, 0.0,
                                  True), {"scale": 0.3}),
    "softmax": lambda: (_ATEN.softmax.int, (noise(6, 5, 4), 1), {}),
    "instance_norm": lambda: (_ATEN.instance_norm.default,
                              (noise(11, 4, 6, 6), noise(4), noise(4, seed=1), None, None, True, 0.1, 1e-5, True), {}),
    "group_norm": lambda: (_ATEN.group_norm.default, (noise(11, 4, 6, 6), 2, noise(4), noise(4, seed=1)), {}),
    "layer_norm": lambda: (_ATEN.layer_norm.default, (noise(11, 4, 6), [6], noise(6), noise(6, seed=1)), {}),
    "grid_sampler": lambda: (_ATEN.grid_sampler.default,
                             (noise(15, 4, 8, 8), noise(15, 3, 5, 2).tanh(), 0, 0, False), {}),
    "einsum": lambda: (_ATEN.einsum.default, ("bij,bjk->bik", [noise(3, 4, 5), noise(3, 5, 6)]), {}),
    "gelu": lambda: (_ATEN.gelu.default, (noise(30, 6).t(),), {}),
    "upsample": lambda: (_ATEN.upsample_bilinear2d.vec, (noise(5, 2, 4, 4), [8, 8], False, None), {}),
}


@pytest.mark.parametrize("name", list(OPS))
def test_every_alternative_of_an_op_gives_the_result_of_the_op(name: str) -> None:
    function, arguments, keywords = OPS[name]()
    call = open_call(exemplar(function, *arguments, **keywords), "fp32", CPU)
    with torch.inference_mode():
        expected = call.run()
        found = alternatives(call, Platform(on_cuda=False))
        assert found, "an op of this kind has alternatives"
        for one in found:
            with one.setting():
                result = one.make(call)()
            told = compare(expected, result, op_alternatives.coarser(own_arithmetic(call, False), one.arithmetic))
            assert told.agrees, f"{one.change}: {told}"
            assert one.change.split(": ")[0] in ("flag", "backend", "layout", "contiguity", "rewriting", "precision")


def changes(name: str, on_cuda: bool = False) -> list[str]:
    function, arguments, keywords = OPS[name]()
    call = open_call(exemplar(function, *arguments, **keywords), "fp32", CPU)
    return [one.change for one in alternatives(call, Platform(on_cuda, (9, 0) if on_cuda else None))]


def test_a_batch_of_fifteen_is_padded_to_sixteen_and_cut_in_parts() -> None:
    found = changes("conv2d")
    assert "rewriting: batch padded from 15 to 16 and cropped" in found
    assert "rewriting: batch padded from 15 to 16 and cropped (copy not timed)" in found
    assert {"rewriting: batch in 2 parts", "rewriting: batch in 4 parts"} <= set(found)
    assert "rewriting: batch padded from 17 to 24 and cropped" in changes("bmm")
    assert "rewriting: batch padded from 17 to 32 and cropped" in changes("bmm")


def test_rewritings_follow_the_arguments() -> None:
    assert "rewriting: 1x1 convolution as a matrix product" in changes("conv2d 1x1")
    assert "rewriting: im2col and a matrix product" in changes("conv2d")
    assert "rewriting: channels padded (in from 6 to 8, out from 10 to 16) and cropped" in changes("conv2d")
    assert "rewriting: batch folded into the rows of one matrix product" in changes("matmul expanded")
    assert "rewriting: batch folded into the rows of one matrix product" not in changes("matmul grows")
    assert "rewriting: softmax over a contiguous last axis" in changes("softmax")
    assert "contiguity: input made contiguous" in changes("conv2d strided")


def test_settings_of_cuda_libraries_are_tried_on_cuda_alone() -> None:
    wanted = {"flag: cudnn.benchmark on", "flag: cuDNN off", "flag: cudnn.deterministic on", "precision: TF32 on"}
    assert wanted <= set(changes("conv2d", on_cuda=True))
    assert not wanted & set(changes("conv2d"))
    backends = {"backend: flash attention", "backend: memory-efficient attention", "backend: math attention"}
    assert backends <= set(changes("attention", on_cuda=True))
    assert changes("conv2d", on_cuda=True)[-1] == "flag: cudnn.benchmark on"  # needs a process of its own: last


def test_an_op_that_writes_its_argument_is_compared_on_fresh_copies() -> None:
    worker = opened(exemplar(torch.ops.aten.add_.Tensor, noise(4, 4), noise(4, 4).t()))
    told = worker.answer({"do": "trial", "change": "contiguity: other made contiguous", "budget_s": 0.01,
                          "cold": False}, silent)
    assert told["agreement"]["agrees"] is True
    assert told["agreement"]["max_abs_diff"] == 0


# --- replay ----------------------------------------------------------------------------------------------------------


def silent(phase: str, count: int) -> None:
    return None


def opened(kept: Exemplar, more: list[Alternative] | None = None, precision: str = "fp32") -> OpWorker:
    """A worker with this op opened, `more` alternatives beside its own."""
    worker = OpWorker("cpu", precision, cudnn_benchmark=False)
    call = open_call(kept, precision, CPU)
    found = alternatives(call, Platform(False)) + (more or [])
    worker._opened = kept, call, {one.change: one for one in found}
    return worker


@contextmanager
def planted_op() -> Iterator[Any]:
    """An op that is slow exactly when its input is not contiguous."""
    library = torch.library.Library("gapscope_test", "FRAGMENT")
    library.define("slow_if_strided(Tensor x) -> Tensor")

    def slow(x: Tensor) -> Tensor:
        end = time.perf_counter() + (0 if x.is_contiguous() else 0.003)
        while time.perf_counter() < end:
            pass
        return x + 1

    library.impl("slow_if_strided", slow, "CPU")
    try:
        yield torch.ops.gapscope_test.slow_if_strided.default
    finally:
        library._destroy()


def test_a_planted_slow_op_is_found_and_its_better_alternative_named() -> None:
    with planted_op() as slow:
        def call() -> None:
            with torch.inference_mode():
                data = noise(40, 40)
                slow(data)
                slow(data.t())

        subject = op_capture.Subject(call, None)
        events, _ = profile.record(call, None, HostClock(), with_shapes=True, on_cuda=False)
        table = profile.read_trace(events, on_cuda=False).ops
        lost = most_lost(table, floor_rates(DEVICES["cpu"], "fp32", launch_us=1.0), top=5)
        # On a busy machine the noise itself may take longer; of the two calls of the op the strided one is the worse.
        worst, lost_ms = next((op, ms) for op, ms in lost if op.op.startswith("gapscope_test"))
        assert (worst.op, worst.layout) == ("gapscope_test::slow_if_strided", "strides(1,40)")
        assert lost_ms >= 2.9
        numbered = op_capture.numbered_calls(subject, HostClock())
        assert numbered[worst.key()].name == worst.op
        worker = opened(exemplar(slow, noise(40, 40).t()))
        looked = Looked(worst, lost_ms, reproduced=True)
        for change in worker._now()[2]:
            told = worker.answer({"do": "trial", "change": change, "budget_s": 0.01, "cold": False}, silent)
            looked.trials.append(trial(change, told["before_ms"], told["after_ms"], told["agreement"]["agrees"]))
    best = looked.best()
    assert best is not None
    assert best["change"] == "contiguity: x made contiguous"
    assert best["factor"] > 3
    assert "contiguity: x made contiguous" in closing_table(summary([looked], [10.0]))


def trial(change: str, before_ms: list[float], after_ms: list[float], agrees: bool | None = True) -> dict[str, Any]:
    middle = sorted(before_ms)[len(before_ms) // 2], sorted(after_ms)[len(after_ms) // 2]
    return {"change": change, "factor": middle[0] / middle[1], "faster": clearly_faster(before_ms, after_ms),
            "agrees": agrees, "max_abs_diff": 0.0, "before_ms": middle[0], "after_ms": middle[1],
            "launches_before": None, "launches_after": None}


def test_other_results_are_reported_and_never_the_best() -> None:
    wrong = Alternative("rewriting", "off by one", lambda call: lambda: call.named["self"].relu() + 1)
    worker = opened(exemplar(torch.ops.aten.relu.default, noise(50, 50)), [wrong])
    told = worker.answer({"do": "trial", "change": "rewriting: off by one", "budget_s": 0.01, "cold": False}, silent)
    assert told["agreement"]["agrees"] is False
    assert told["agreement"]["max_abs_diff"] == pytest.approx(1.0)
    looked = Looked(op(), 1.0, reproduced=True, trials=[trial("rewriting: off by one", [9.0] * 5, [1.0] * 5, False)])
    assert looked.best() is None
    assert "other results: rewriting: off by one" in closing_table(summary([looked], [10.0]))


def test_kernels_of_each_change_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_gpu(call: Callable[[], object], *_: Any, **__: Any) -> tuple[list[dict[str, Any]], float]:
        """A trace in which each op launches one kernel of 10 us that bears its name; so do its children."""
        events, wall_ms = profile.record(call, None, HostClock(), with_shapes=True, on_cuda=False)
        launched = []
        for number, event in enumerate(event for event in events if event.get("cat") == "cpu_op"):
            launched += [
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": event["tid"],
                 "ts": event["ts"], "dur": 0, "args": {"correlation": number}},
                {"ph": "X", "cat": "kernel", "name": f"kernel_of_{event['name']}", "tid": 99, "ts": event["ts"],
                 "dur": 10.0, "args": {"correlation": number}},
            ]
        return [*events, *launched], wall_ms

    worker = opened(exemplar(torch.ops.aten.relu.default, noise(40, 40).t()))
    worker.on_cuda = True
    monkeypatch.setattr(worker, "_recorded", on_a_gpu)
    change = "contiguity: self made contiguous"
    told = worker.answer({"do": "kernels", "changes": [change, "nobody's"], "budget_s": 5.0}, silent)["by_change"]
    assert told[""]["kernels"] == told["cold"]["kernels"]
    assert "kernel_of_aten::relu" in told[""]["kernels"]
    assert "kernel_of_aten::contiguous" not in told[""]["kernels"]
    assert told[""]["device_ms"] == pytest.approx(0.010 * told[""]["launches"])
    assert "kernel_of_aten::contiguous" in told[change]["kernels"]
    assert told[change]["launches"] > told[""]["launches"]
    assert "KeyError" in told["nobody's"]["error"]


def test_no_failure_of_an_op_escapes_a_worker(tmp_path: Path) -> None:
    def breaks(call: Call) -> Callable[[], Any]:
        raise RuntimeError("No available kernel")

    worker = opened(exemplar(torch.ops.aten.relu.default, noise(3, 3)), [Alternative("backend", "broken", breaks)])
    order = {"do": "trial", "change": "backend: broken", "budget_s": 0.01, "cold": False}
    assert "No available kernel" in worker.answer(order, silent)["error"]
    assert "error" in worker.answer({**order, "change": "never heard of"}, silent)
    (tmp_path / "broken.pt").write_bytes(b"no exemplar")
    assert "error" in worker.answer({"do": "open", "file": str(tmp_path / "broken.pt")}, silent)
    assert "error" in worker.answer({"do": "base", "budget_s": 0.01, "cold": False}, silent)
    assert "error" in worker.answer({"do": "capture", "keys": [], "folder": str(tmp_path)}, silent)


def test_results_are_compared_by_the_size_of_the_largest() -> None:
    a = torch.tensor([1000.0, 0.0, math.inf, math.nan])
    assert compare(a, a.clone(), "float32").agrees is True
    near, far = a.clone(), a.clone()
    near[1], far[1] = 0.05, 0.2  # the tolerance is 1e-4 x 1000 = 0.1
    assert compare(a, near, "float32").agrees is True
    assert compare(a, far, "float32").agrees is False
    assert compare(a, far, "tf32").agrees is True
    assert compare(a, torch.tensor([1000.0, 0.0, 1.0, math.nan]), "float32").agrees is False
    assert compare(a, torch.tensor([1000.0, 0.0, math.inf, 0.0]), "float32").agrees is False
    assert compare(a, a[:3], "float32").agrees is False


def test_samples_of_both_sides_take_turns() -> None:
    order: list[str] = []
    before, after = Meter(CPU).alternate((lambda: order.append("a"), 1), (lambda: order.append("b"), 2), budget_s=0.0)
    assert order == ["a", "b", "b", "b", "b", "a", "a", "b", "b"]
    assert len(before) == len(after) == 3


def test_a_result_in_place_is_copied_before_the_next_call() -> None:
    data = noise(3)
    kept = copied([data, (data,)])
    data.zero_()
    assert kept[0].abs().sum() > 0
    assert torch.equal(kept[0], kept[1][0])


# --- lost time -------------------------------------------------------------------------------------------------------


def test_lost_time_is_what_roofline_and_launch_floor_do_not_explain() -> None:
    rates = FloorRates(matmul_tflops=1.0, convolution_tflops=10.0, bandwidth_gb_s=100.0, launch_us=5.0, source="test")
    # 1e10 flops at 10 TFLOP/s: 1 ms; 1e8 bytes at 100 GB/s: 1 ms; 10 calls x 5 us: 0.05 ms
    conv = op("aten::conv2d", device_ms=4.0, flops=10_000_000_000, bytes=1000)
    assert rates.floor_ms(conv) == pytest.approx(1.0)
    assert rates.floor_ms(replace(conv, op="aten::matmul")) == pytest.approx(10.0)
    copy = op("aten::copy_", device_ms=1.5, flops=0, bytes=100_000_000)
    many = op("aten::add", device_ms=9.0, flops=0, bytes=8, calls=1000, launches=60_000)
    assert rates.floor_ms(many) == pytest.approx(5.0)  # one launch for each call, however many there were
    found = most_lost([copy, conv, many, op("(rest)", device_ms=99.0), op("(no op)", device_ms=99.0)], rates, top=2)
    assert [(row.op, round(lost, 6)) for row, lost in found] == [("aten::add", 4.0), ("aten::conv2d", 3.0)]


def test_measured_ceilings_replace_the_data_sheet() -> None:
    h200 = DEVICES["h200-sxm-141gb"]
    sheet = floor_rates(h200, "fp32", 3.0)
    assert sheet.matmul_tflops == pytest.approx(67, rel=0.02)
    assert floor_rates(h200, "default", 3.0).convolution_tflops == pytest.approx(494, rel=0.02)
    measured = floor_rates(h200, "fp32", 3.0, [Ceiling("copy", 4200.0, "GB/s"),
                                               Ceiling("gemm", 51.0, "TFLOPS", precision="fp32"),
                                               Ceiling("gemm", 400.0, "TFLOPS", precision="tf32")])
    assert (measured.matmul_tflops, measured.bandwidth_gb_s) == (51.0, 4200.0)
    assert floor_rates(DEVICES["cpu"], "fp32", 1.0).source.startswith("launch floor alone")


def test_a_replay_stands_for_the_op_by_time_and_kernels() -> None:
    assert reproduced(1.0, 1.19, ["a", "b"], ["b", "a"], calls=1)
    assert not reproduced(1.0, 1.21, ["a"], ["a"], calls=1)
    assert not reproduced(1.0, 0.79, ["a"], ["a"], calls=1)
    assert not reproduced(1.0, 1.0, ["a"], ["fft"], calls=1)
    assert not reproduced(1.0, 1.0, ["a", "b"], ["a"], calls=1)
    assert reproduced(1.0, 1.0, ["a", "b"], ["a"], calls=7)  # another call may have used b


def test_only_a_difference_beyond_the_spread_is_faster() -> None:
    assert clearly_faster([10, 11, 12, 13], [5, 6, 7, 30])
    assert not clearly_faster([10, 11, 12, 13], [9.9, 10.9, 11.9, 12.9])


def test_the_closing_table_adds_the_best_of_each_op_that_was_reproduced() -> None:
    looked = [
        Looked(op(device_ms=40.0), 30.0, True, trials=[trial("rewriting: a", [8.0] * 4, [2.0] * 4),
                                                      trial("layout: b (copy not timed)", [8.0] * 4, [1.0] * 4),
                                                      trial("precision: TF32 on", [8.0] * 4, [0.5] * 4)]),
        Looked(op("aten::add", device_ms=20.0), 10.0, False, trials=[trial("layout: c", [8.0] * 4, [2.0] * 4)]),
        Looked(op("aten::mm", device_ms=5.0), 1.0, note="arguments could not be kept"),
    ]
    told = summary(looked, [90.0, 100.0, 110.0])
    assert told["saving_ms"] == pytest.approx(30.0)  # 40 x (1 - 1/4); the second op was not reproduced
    assert told["saving_share"] == pytest.approx(0.3)
    assert told["ops"][0]["best"]["change"] == "rewriting: a"
    assert told["ops"][0]["best_other_precision"]["factor"] == pytest.approx(16)
    text = closing_table(told)
    assert "30.0 ms of 100 ms per pass (30 %)" in text
    assert "arguments could not be kept" in text


# --- a whole run, with a worker that is a script ---------------------------------------------------------------------

FAKE_WORKER = """
import json, sys, pathlib
facts = json.loads(pathlib.Path(sys.argv[1]).read_text())
log = open(sys.argv[2], "a")
benchmark = False
for line in sys.stdin:
    order = json.loads(line)
    do = order["do"]
    print(do, order.get("change", ""), int(benchmark), file=log, flush=True)
    answer = {"type": do}
    if do == "quit":
        break
    if do == "hello":
        benchmark = order["cudnn_benchmark"]
        answer.update(facts["hello"])
    elif do == "entry":
        answer.update(work=facts["work"])
    elif do == "profile":
        answer.update(facts["profile"])
    elif do == "capture":
        answer.update(files={key: "op.pt" for key in order["keys"] if "lost" not in key},
                      notes={key: "the op was not met again" for key in order["keys"] if "lost" in key})
    elif do == "open":
        answer.update(alternatives=facts["alternatives"])
    elif do == "base":
        answer.update(samples_ms=[2.0 if benchmark else 4.0] * 3,
                      agreement={"max_abs_diff": 0.0, "tolerance": 1.0, "agrees": True} if order.get("reference")
                      else None)
    elif do == "kernels" and "backend: deadly" in order["changes"]:
        answer.update(error="RuntimeError: cuDNN error", culprit="backend: deadly", retire=True)
    elif do == "kernels":
        answer.update(by_change={
            change: {"kernels": ["fft"] if not change else ["gemm"], "launches": 9000 if not change else 7,
                     "device_ms": 4.0 if not change else 1.0} for change in ["", *order["changes"]]})
    elif do == "trial":
        if order["change"] == "backend: deadly":
            sys.exit(9)
        if order["change"] == "backend: refused":
            answer.update(error="RuntimeError: No available kernel")
        else:
            answer.update(before_ms=[4.0] * 3, after_ms=[1.0] * 3,
                          agreement={"max_abs_diff": 1e-6, "tolerance": 1e-4, "agrees": True})
    print(json.dumps(answer), flush=True)
"""


class Place:
    """A run of the microscope on a GPU that is a script: two ops, one of which cannot be captured."""

    def __init__(self, folder: Path, gpu: str = "h200-sxm-141gb") -> None:
        self.folder = folder
        head = header(gpu)
        slow = op("aten::conv2d", device_ms=40.0, calls=10, kernels=("fft",), launches=90_000)
        facts = {
            "hello": {"device": to_json(head.device), "host": to_json(head.host), "software": to_json(head.software),
                      "settings": {}, "warnings": ["a doubt"], "busy": None, "unsupported": None, "launch_us": 3.0},
            "profile": {"pass_ms": [100.0, 101.0], "profiled_ms": 120.0, "kernel_busy_ms": 90.0,
                        "ops": [to_json(slow), to_json(op("aten::lost", device_ms=30.0))]},
            "alternatives": [{"change": change, "own_process": change.startswith("flag")} for change in (
                "rewriting: batch padded from 15 to 16 and cropped", "backend: deadly", "backend: refused",
                "layout: channels_last", "flag: cudnn.benchmark on")],
        }
        (folder / "facts.json").write_text(json.dumps(facts))
        (folder / "worker.py").write_text(textwrap.dedent(FAKE_WORKER))
        self.said: list[str] = []
        self.signals = Signals()
        self.file = folder / "run.jsonl"
        request = MicroscopeRequest(registry.work_key("local4d:base", 47, 256, 256, 256))
        self.microscope = Microscope(
            request, self.file, "20261130-100000-abcdef01", RunsFolder(folder / "runs"), self.signals,
            self.said.append, (sys.executable, str(folder / "worker.py"), str(folder / "facts.json"),
                               str(folder / "log.txt")),
        )

    def records(self, kind: type) -> list[Any]:
        found = read_run_file(self.file)
        assert found.problems == ()
        return [line.record for line in found.lines if isinstance(line.record, kind)]

    @property
    def log(self) -> list[str]:
        return (self.folder / "log.txt").read_text().splitlines()


def test_a_run_writes_one_line_per_trial_and_outlives_a_worker_that_dies(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.microscope.run() == "done"
    found = {one.change: one for one in place.records(OpTrial)}
    assert set(found) == {"rewriting: batch padded from 15 to 16 and cropped", "layout: channels_last",
                          "flag: cudnn.benchmark on"}
    padded = found["rewriting: batch padded from 15 to 16 and cropped"]
    assert padded.reproduced is True
    assert padded.op.op == "aten::conv2d"
    assert (padded.before_ms, padded.after_ms) == ((4.0,) * 3, (1.0,) * 3)
    assert (padded.kernels_before, padded.kernels_after) == (("fft",), ("gemm",))
    assert (padded.launches_before, padded.launches_after) == (9000, 7)
    assert padded.agrees is True
    notes = {note.event: note for note in place.records(Note)}
    assert notes["not_tried"].data["reasons"]["backend: refused"].startswith("RuntimeError: No available kernel")
    assert "ended with code 9" in notes["not_tried"].data["reasons"]["backend: deadly"]
    assert notes["op_looked_at"].data["note"] == "the op was not met again"
    assert place.log.count("kernels  0") == 2  # again without the one that broke the profiling process
    assert notes["warning"].text == "a doubt"


def test_cudnn_benchmark_is_on_from_the_start_of_a_process_of_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.microscope.run()
    assert place.log.count("base  1") == 3
    assert "trial flag: cudnn.benchmark on 0" not in place.log
    found = next(one for one in place.records(OpTrial) if one.change == "flag: cudnn.benchmark on")
    assert (found.before_ms, found.after_ms) == ((4.0,) * 9, (2.0,) * 9)


def test_a_spent_budget_ends_the_run_and_keeps_what_was_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.microscope.deadline = 0.0
    assert place.microscope.run() == "stopped"
    assert read_run_file(place.file).lines[-1].record.reason == "budget of 480 s spent, 2 ops left"


def test_a_first_interrupt_stops_after_the_running_op(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.signals.count = 0
    place.microscope.say = lambda line: setattr(place.signals, "count", 1) if line.startswith("1/2") else None
    assert place.microscope.run() == "stopped"
    assert len(place.records(OpTrial)) == 3


def test_a_full_disk_ends_the_run_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    write = RunWriter.write

    def full(self: RunWriter, record: Any, durable: bool = True) -> int:
        if isinstance(record, OpTrial):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, record, durable)

    monkeypatch.setattr(RunWriter, "write", full)
    with pytest.raises(UserError, match=r"run\.jsonl cannot be written \(No space left on device\)"):
        place.microscope.run()
    assert place.records(Note)


def test_copies_of_ops_that_a_killed_run_left_are_removed_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folders = [tmp_path / f"gapscope-ops-{pid}-x" for pid in (gone.pid, os.getpid())]
    for folder in folders:
        folder.mkdir()
        (folder / "0.pt").touch()
    clear_abandoned(tmp_path)
    assert [folder.exists() for folder in folders] == [False, True]


def test_a_busy_gpu_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    facts = json.loads((tmp_path / "facts.json").read_text())
    facts["hello"]["busy"] = "one process, 3 GiB"
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match="one process, 3 GiB"):
        place.microscope.run()
    assert not place.file.exists()


def test_an_own_model_is_looked_at_and_its_work_stands_in_the_header(tmp_path: Path) -> None:
    place = Place(tmp_path)
    work = replace(work_before_a_look("mine.py:build"), revision="in:1x3:float32 params:9")
    facts = json.loads((tmp_path / "facts.json").read_text())
    (tmp_path / "facts.json").write_text(json.dumps(facts | {"work": to_json(work)}))
    place.microscope.request = replace(place.microscope.request, work=work_before_a_look("mine.py:build"),
                                       entry="/home/me/mine.py:build")
    assert place.microscope.run() == "done"
    asked = read_run_file(place.file).header.request["microscope"]
    assert (asked["tracker"], asked["entry"], asked["work_key"]) == ("mine", "mine.py:build", work.key())
    assert "/home/me" not in place.file.read_text()


def test_ops_of_an_own_model_are_taken_out_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3)), torch.ones(2, 4), "
        "{'head': '0'}\n"
    )
    worker = OpWorker("cpu", "fp32", cudnn_benchmark=False)
    entry = {"entry": f"{tmp_path / 'mine.py'}:build", "seed": 0}
    work = worker.answer({"do": "entry", **entry}, silent)["work"]
    assert work["tracker"] == "mine"
    order = {"do": "profile", "work": work, "checkouts": {}, "weights": None, "passes_s": 0.0, **entry}
    told = worker.answer(order, silent)
    linear = next(one for one in told["ops"] if one["op"] == "aten::linear")
    assert linear["stage"] == "head"
    with pytest.raises(UserError, match=r"no file 'gone\.py'"):
        worker.answer({"do": "entry", "entry": "gone.py:build", "seed": 0}, silent)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_looks_into_a_small_tracker_on_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads that share a busy core take ten times as long
    out = tmp_path / "look.jsonl"
    code = main(["--tracker", "local4d:small", "--frames", "2", "--resolution", "32", "--points", "2", "--top", "1",
                 "--device", "cpu", "--budget", "5s", "--out", str(out), "--runs", str(tmp_path / "runs"), "--json"])
    assert code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pass_ms"] > 0
    found = read_run_file(out)
    assert found.problems == ()
    assert found.lines[-1].record.state in ("done", "stopped")
    tried = [line.record for line in found.lines if isinstance(line.record, OpTrial)]
    assert all(len(one.before_ms) == len(one.after_ms) >= 3 for one in tried)
    assert str(tmp_path) not in out.read_text()


@pytest.mark.parametrize(("options", "words"), [
    (["--tracker", "local5d"], "unknown tracker"),
    (["--tracker", "local4d", "--precision", "fp31"], "unknown precision"),
    (["--tracker", "local4d", "--budget", "1s"], "at least 5 s"),
    (["--tracker", "local4d", "--top", "0"], "whole number from 1"),
    (["--tracker", "local4d", "--ceilings", "none.jsonl"], "no file 'none.jsonl'"),
    (["--entry", "mine.py", "--frames", "4"], "--entry with --frames"),
    (["--tracker", "local4d", "--weights", "mine.pt"], "--weights with local4d"),
    ([], "nothing to look at; expected --tracker NAME or --entry"),
])
def test_a_mistake_takes_one_line_and_exit_code_2(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert shell(["microscope", *options]) == 2


# --- what explain reads ----------------------------------------------------------------------------------------------


def row(change: str, before: float, after: float, **changes: Any) -> dict[str, Any]:
    """One stored trial, ten samples a side that differ by 1 %."""
    return {
        "op": "aten::conv2d", "stage": "encoder", "shapes": "[[15,256,64,64],[256,256,3,3]]", "dtypes": "[]",
        "layout": "contiguous", "scalars": "[]", "calls": 10, "device_ms": 40.0, "change": change,
        "before_ms": [before * (1 + 0.001 * i) for i in range(10)],
        "after_ms": [after * (1 + 0.001 * i) for i in range(10)], "max_abs_diff": 1e-6, "reproduced": True,
        "agrees": True, "launches_before": 9000.0, "launches_after": 7.0, "kernels_before": ["fft"],
        "kernels_after": ["gemm"], "pass_ms": 100.0, **changes,
    }


def test_a_trial_becomes_factor_saving_and_sentence() -> None:
    found = trials.op_trials(pd.DataFrame([row("rewriting: batch padded from 15 to 16 and cropped", 4.0, 1.0)]))
    only = found.iloc[0]
    assert only["factor"] == pytest.approx(4.0)
    assert only["low"] <= only["factor"] <= only["high"]
    assert only["verdict"] == "faster"
    assert only["saving_ms"] == pytest.approx(30.0)  # 40 x (1 - 1/4)
    assert only["saving_share"] == pytest.approx(0.3)
    assert "batch padded from 15 to 16 and cropped is 4.00x as fast" in only["sentence"]
    assert "with 7 instead of 9\u2009000 launches" in only["sentence"]
    assert only["sentence"].endswith("in one pass that would save about 30.0 ms (30 %).")


@pytest.mark.parametrize(("changes_of_row", "words"), [
    ({"agrees": False, "max_abs_diff": 0.5}, "results differ by up to 0.5"),
    ({"agrees": None}, "nobody compared"),
    ({"reproduced": False}, "does not behave as in the tracker"),
    ({"reproduced": None}, "not known"),
    ({"change": "precision: TF32 on"}, "arithmetic is another one"),
    ({"change": "layout: channels_last (copy not timed)"}, "only if what comes before"),
])
def test_a_faster_trial_that_is_not_the_same_work_saves_nothing(changes_of_row: dict[str, Any], words: str) -> None:
    table = trials.op_trials(pd.DataFrame([row("rewriting: a", 4.0, 1.0) | changes_of_row]))
    assert table.iloc[0]["verdict"] == "faster"
    assert not table.iloc[0]["counts"]
    assert pd.isna(table.iloc[0]["saving_ms"])
    assert words in table.iloc[0]["sentence"]
    assert trials.total_saving_ms(table) == 0


def test_savings_of_one_op_are_not_added() -> None:
    table = trials.op_trials(pd.DataFrame([
        row("rewriting: a", 4.0, 2.0), row("rewriting: b", 4.0, 1.0), row("rewriting: c", 4.0, 4.001),
        row("rewriting: d", 4.0, 8.0), row("rewriting: e", 4.0, 2.0, op="aten::linear", device_ms=10.0),
    ]))
    assert list(table["change"].str[-1]) == ["b", "a", "e", "c", "d"]
    assert list(table["verdict"]) == ["faster", "faster", "faster", "cannot tell", "slower"]
    assert list(trials.best_trials(table)["change"].str[-1]) == ["b", "e"]
    assert trials.total_saving_ms(table) == pytest.approx(35.0)


def test_a_table_without_the_newer_columns_or_without_rows_is_read() -> None:
    bare = pd.DataFrame([row("rewriting: a", 4.0, 1.0)]).drop(columns=["agrees", "launches_before", "pass_ms"])
    assert not trials.op_trials(bare).iloc[0]["counts"]
    empty = trials.op_trials(bare.iloc[:0])
    assert list(empty.columns) == list(trials.COLUMNS)
    assert trials.total_saving_ms(empty) == 0
