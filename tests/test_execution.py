"""Executions and settings of a forward pass on a CPU: what runs, what says why it cannot, and what is left behind."""
from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.measure import execution, precision
from core.measure.execution import CAST, COMPILE, CUDAGRAPH, Arranged, Unsupported, arrange
from core.records import SettingKey
from core.trackers.stages import StageLog, no_marker
from core.trackers.tracker import Tracker

CPU = torch.device("cpu")


class Tiny(Tracker):
    """A convolution and an attention of one head, each in a stage."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Conv2d(3, 4, 3, padding=1)
        self.register_buffer("offset", torch.full((4,), 0.5))

    def forward(self, x: Tensor, step: int = 1) -> Tensor:
        with self.stage("encoder"):
            y = self.encoder(x)
        with self.stage("attention"):
            tokens = (y.flatten(2).transpose(1, 2) + self.offset)[:, None].contiguous()
            return F.scaled_dot_product_attention(tokens, tokens, tokens) * step


class Branching(Tiny):
    def forward(self, x: Tensor, step: int = 1) -> Tensor:
        y = super().forward(x)
        if y.sum() > 0:  # the break
            y = y + 1
        return y * y.max().item()


class Failing(Tiny):
    def forward(self, x: Tensor, step: int = 1) -> Tensor:
        raise LookupError("its own fault")


def arranged(
    model: Tracker, backend: str = "eager", cuda: Any = None, device: torch.device = CPU, **setting: Any
) -> contextlib.AbstractContextManager[Arranged]:
    key = SettingKey(**{"precision": "fp32", **setting})
    return arrange(
        model, {"x": torch.linspace(-1, 1, 48).view(1, 3, 4, 4), "step": 2}, key, device,
        lambda: precision.autocast(key.precision, "cpu"), backend=backend, cuda=cuda,
    )


def output(model: Tracker, **setting: Any) -> Tensor:
    with arranged(model, **setting) as ready:
        ready.call()
        result: Tensor = ready.call()
        return result


def reason(model: Tracker, **setting: Any) -> str:
    with pytest.raises(Unsupported) as caught, arranged(model, **setting) as ready:
        ready.call()
    assert "\n" not in caught.value.reason
    return caught.value.reason


# --- what runs ---


@pytest.mark.parametrize("setting", [
    {"execution": COMPILE}, {"memory_format": "channels_last"}, {"sdp_backend": "math"}, {"sdp_backend": "flash"},
    {"execution": COMPILE, "memory_format": "channels_last", "sdp_backend": "math"},
])
def test_a_setting_computes_what_eager_computes(setting: dict[str, Any]) -> None:
    assert torch.allclose(output(Tiny(), **setting), output(Tiny()), atol=1e-5)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_cast_gives_the_dtype_and_puts_the_weights_back(name: str) -> None:
    model = Tiny()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with arranged(model, execution=CAST, precision=name) as ready:
        assert ready.call().dtype == precision.AUTOCAST[name]
        assert ready.notes == {"autocast": None, "cast": str(precision.AUTOCAST[name])[6:]}
    after = model.state_dict()
    assert all(torch.equal(after[key], value) and after[key].dtype == value.dtype for key, value in before.items())


def test_channels_last_turns_the_weights_and_turns_them_back() -> None:
    model = Tiny()
    with arranged(model, memory_format="channels_last") as ready:
        assert model.encoder.weight.is_contiguous(memory_format=torch.channels_last)
        assert not model.encoder.weight.is_contiguous()
        assert ready.notes == {"channels_last_weights": 1}
    assert model.encoder.weight.is_contiguous()


def test_autocast_is_inside_the_call() -> None:
    assert output(Tiny(), precision="bf16").dtype == torch.bfloat16


def test_a_call_runs_in_inference_mode_and_the_counted_pass_does_not() -> None:
    with arranged(Tiny()) as ready:
        assert ready.call().is_inference()
        assert not ready.eager().is_inference()


def test_flags_are_as_before_even_after_an_error() -> None:
    seen = []

    class Looking(Failing):
        def forward(self, x: Tensor, step: int = 1) -> Tensor:
            seen.append(torch.backends.cuda.flash_sdp_enabled())
            return super().forward(x, step)

    with pytest.raises(LookupError, match="its own fault"), arranged(Looking(), sdp_backend="math") as ready:
        ready.call()
    assert seen == [False]
    assert torch.backends.cuda.flash_sdp_enabled()


def test_cudnn_benchmark_holds_inside_the_block_only() -> None:
    with arranged(Tiny(), device=torch.device("cuda"), cudnn_benchmark=True):
        assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.benchmark


# --- stages ---


def test_an_eager_pass_tells_its_stages() -> None:
    log = StageLog()
    with arranged(Tiny()) as ready, ready.listening(log):
        ready.call()
    assert log.visits == ["encoder", "attention"]


def test_a_compiled_pass_has_no_stages_and_is_not_traced_with_a_marker() -> None:
    model, log = Tiny(), StageLog()
    with arranged(model, execution=COMPILE) as ready, ready.listening(log):
        ready.call()
        assert model.stage_marker is no_marker
        assert not ready.has_stages
    assert log.visits == []


# --- compile ---


def test_a_model_without_breaks_is_one_graph() -> None:
    with arranged(Tiny(), execution=COMPILE) as ready:
        ready.call()
        assert ready.notes == {"graphs": 1, "graph_breaks": 0}


def test_graph_breaks_are_counted_and_the_first_is_named() -> None:
    with arranged(Branching(), execution=COMPILE) as ready:
        compiled = ready.call()
        assert ready.notes["graph_breaks"] == 2
        assert ready.notes["graphs"] == 3
        line = Branching.forward.__code__.co_firstlineno + 2
        assert ready.notes["graph_break"] == (
            f"2 graph breaks, first at test_execution.py:{line}: a branch on a tensor's value")
        with torch.no_grad():
            assert torch.allclose(compiled, ready.eager())


def test_a_second_size_is_compiled_afresh_for_its_own_shape() -> None:
    model = Tiny()
    for _ in range(2):
        with arranged(model, execution=COMPILE) as ready:
            ready.call()
            assert ready.notes["graphs"] == 1


def test_a_failing_compiler_is_told() -> None:
    def broken(graph: Any, example_inputs: Any) -> Any:
        raise NotImplementedError("no such kernel\nmore")

    assert "torch.compile failed" in reason(Tiny(), execution=COMPILE, backend=broken)
    assert "no such kernel" in reason(Tiny(), execution=COMPILE, backend=broken)


def test_a_fault_of_the_model_is_not_blamed_on_compile() -> None:
    with pytest.raises(LookupError), arranged(Failing(), execution=COMPILE) as ready:
        ready.call()


def test_a_model_that_compiles_to_nothing_is_not_called_compiled() -> None:
    class Plain(Tiny):
        @torch._dynamo.disable
        def forward(self, x: Tensor, step: int = 1) -> Tensor:
            return x

    assert "nothing" in reason(Plain(), execution=COMPILE)


def test_without_a_compiler_on_a_cpu_compile_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution.shutil, "which", lambda name: None)
    assert "C++ compiler" in reason(Tiny(), execution=COMPILE, backend="inductor")


# --- what cannot run ---


@pytest.mark.parametrize(("setting", "told"), [
    ({"execution": "jit"}, "unknown execution 'jit'"),
    ({"memory_format": "nhwc"}, "unknown memory format 'nhwc'"),
    ({"sdp_backend": "fast"}, "unknown attention backend 'fast'"),
    ({"execution": CUDAGRAPH}, "CUDA device"),
    ({"cudnn_benchmark": True}, "a CPU has none"),
    ({"execution": CAST}, "fp16 or bf16, not fp32"),
    ({"sdp_backend": "mem_efficient"}, "mem_efficient attention: RuntimeError: No"),
])
def test_what_cannot_run_says_why(setting: dict[str, Any], told: str) -> None:
    assert told in reason(Tiny(), **setting)


def test_channels_last_without_images_would_change_nothing() -> None:
    class Flat(Tracker):
        pass

    assert "no contiguous 4-dimensional weights" in reason(Flat(), memory_format="channels_last")


def test_a_cast_that_the_model_does_not_bear_names_the_line() -> None:
    class Mixed(Tiny):
        def forward(self, x: Tensor, step: int = 1) -> Tensor:
            return F.grid_sample(x, torch.zeros(1, 2, 2, 2))

    told = reason(Mixed(), execution=CAST, precision="bf16")
    line = Mixed.forward.__code__.co_firstlineno + 1
    assert told.startswith(f"cast weights to bf16 at test_execution.py:{line}: RuntimeError")


def test_the_reason_of_an_attention_kernel_comes_from_its_warnings() -> None:
    class Refusing(Tiny):
        def forward(self, x: Tensor, step: int = 1) -> Tensor:
            import warnings

            warnings.warn("Memory efficient kernel not used because: (Triggered at sdp.cpp:1)", stacklevel=1)
            warnings.warn("Something else. (Triggered at sdp.cpp:2)", stacklevel=1)
            warnings.warn("Flash attention kernel not used because: (Triggered at sdp.cpp:3)", stacklevel=1)
            warnings.warn("Flash Attention does not support non-null attn_mask. (Triggered by x)", stacklevel=1)
            raise RuntimeError("No available kernel. Aborting execution.")

    assert reason(Refusing(), sdp_backend="flash") == (
        "flash attention: Flash Attention does not support non-null attn_mask.")
    assert reason(Refusing(), sdp_backend="mem_efficient") == "mem_efficient attention: Something else."


# --- CUDA graph, with stand-ins for streams and graphs ---


class Cuda:
    """Writes down what is asked of torch.cuda."""

    def __init__(self, end_raises: bool = False) -> None:
        self.log: list[str] = []
        self.end_raises = end_raises

    def Stream(self) -> Any:  # noqa: N802 - torch's name
        return self

    def current_stream(self) -> Any:
        return self

    def wait_stream(self, other: Any) -> None:
        self.log.append("wait")

    @contextlib.contextmanager
    def stream(self, side: Any) -> Any:
        self.log.append("side")
        yield
        self.log.append("main")

    def CUDAGraph(self) -> Any:  # noqa: N802 - torch's name
        return self

    @contextlib.contextmanager
    def graph(self, graph: Any) -> Any:
        self.log.append("capture")
        try:
            yield
        finally:
            self.log.append("end")
            if self.end_raises:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def replay(self) -> None:
        self.log.append("replay")

    def reset(self) -> None:
        self.log.append("reset")


class Told(Tiny):
    def __init__(self, cuda: Cuda, error: Exception | None = None) -> None:
        super().__init__()
        self.__dict__["cuda_log"], self.__dict__["error"] = cuda.log, error

    def forward(self, x: Tensor, step: int = 1) -> Tensor:
        self.cuda_log.append("pass")
        if self.error is not None and "capture" in self.cuda_log:
            raise self.error
        return x


def graph_of(cuda: Cuda, error: Exception | None = None) -> contextlib.AbstractContextManager[Arranged]:
    return arranged(Told(cuda, error), cuda=cuda, device=torch.device("cuda"), execution=CUDAGRAPH)


def test_a_graph_is_warmed_up_beside_captured_once_and_replayed() -> None:
    cuda = Cuda()
    with graph_of(cuda) as ready:
        first, second = ready.call(), ready.call()
        assert first is second
    assert cuda.log == [
        "wait", "side", "pass", "pass", "pass", "main", "wait", "capture", "pass", "end", "replay", "replay", "reset"]


def test_a_failed_capture_names_its_cause_and_retires_the_process() -> None:
    cuda = Cuda(end_raises=True)
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might ...")
    with pytest.raises(Unsupported) as caught, graph_of(cuda, error) as ready:
        ready.call()
    line = Told.forward.__code__.co_firstlineno + 3
    assert caught.value.reason == (
        f"CUDA graph: capture failed at test_execution.py:{line}: "
        "RuntimeError: CUDA error: operation not permitted when stream is capturing")
    assert caught.value.retire


def test_memory_that_runs_out_in_a_capture_stays_out_of_memory() -> None:
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    with pytest.raises(RuntimeError, match="out of memory") as caught, graph_of(Cuda(end_raises=True), error) as ready:
        ready.call()
    assert getattr(caught.value, "retire", False)
