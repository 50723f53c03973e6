"""One process of the op microscope: it captures, times or profiles. Started as `python -m core.measure.op_worker`.

It talks in JSON lines like a worker of a sweep. Every answer has the type of its order; one that failed holds `error`,
and `retire` when this process should not be used again.

    {"do": "hello", "device": "auto", "precision": "fp32", "cudnn_benchmark": false}
    {"do": "entry", "entry": "FILE.py:build", "seed": 0}           -> work: the work key of the user's own model
    {"do": "profile", "work": {...}, "seed": 0, "entry": null, "checkouts": {}, "weights": null, "passes_s": 10}
                                                                   -> pass_ms, ops, profiled_ms, kernel_busy_ms
    {"do": "capture", "keys": [...], "folder": "..."}              -> files by op key, notes by op key
    {"do": "open", "file": "..."}                                  -> alternatives [{change, own_process}]
    {"do": "kernels", "changes": [...], "budget_s": 10}            -> by change ("" = as it is, "cold" = with a cold L2)
    {"do": "base", "budget_s": 1, "cold": false, "reference": FILE or null}  -> samples_ms, agreement with the reference
    {"do": "keep", "file": "..."}                                  -> writes the result of the op there
    {"do": "trial", "change": "...", "budget_s": 1, "cold": false} -> before_ms, after_ms, agreement
"""
from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from core.errors import UserError
from core.measure import device, op_capture, precision, profile, reasons
from core.measure.nvml import Nvml, bare_uuid
from core.measure.op_alternatives import Alternative, Platform, alternatives, coarser, own_arithmetic
from core.measure.op_replay import Agreement, Call, Meter, compare, copied, flat_tensors, launch_us, open_call
from core.measure.plan import usable_cores
from core.measure.timing import Clock, CudaClock, HostClock
from core.measure.worker import Pipe, _die_with_parent, _orders
from core.records import WorkKey, from_json, to_json
from core.trackers import own
from core.trackers.stages import PROFILER_PREFIX

AS_IT_IS, COLD = "", "cold"
_PASSES = 5
_PROFILE_TRIES = 3
_PROFILED_MS, _MOST_PROFILED_CALLS = 1.0, 20
_LONG_MS = 20.0  # such a call meets a cold cache whatever lay in it before, and fills a trace of its own
_REFERENCE_BYTES = 512 * 2**20
_ASIDE = "aside"


class OpWorker:
    """A device, the tracker while ops are taken out of it, then one op at a time."""

    def __init__(self, asked: str, precision_name: str, cudnn_benchmark: bool) -> None:
        nvml = Nvml.open()
        users = device.board_users(nvml) if nvml is not None else {}
        self.found = device.find(asked, nvml)
        self.busy = users.get(bare_uuid(self.found.uuid or ""))
        self.device = torch.device(self.found.torch_name)
        self.on_cuda = self.device.type == "cuda"
        if self.on_cuda:
            torch.cuda.set_device(self.device)
        elif "OMP_NUM_THREADS" not in os.environ and usable_cores() < torch.get_num_threads():
            torch.set_num_threads(usable_cores())
        self.precision, self.cudnn_benchmark = precision_name, cudnn_benchmark
        self.clock: Clock = CudaClock(torch, self.device) if self.on_cuda else HostClock()
        self.meter = Meter(self.device, self.found.device.l2_bytes)
        self.subject: op_capture.Subject | None = None
        self._opened: tuple[op_capture.Exemplar, Call, dict[str, Alternative]] | None = None
        self._expected: Any = None
        self._calls: int | None = None  # of the op as it is, in one sample

    def _apply_precision(self) -> None:
        precision.apply(self.precision)
        torch.backends.cudnn.benchmark = self.cudnn_benchmark

    def hello(self) -> dict[str, Any]:
        found = self.found
        unsupported = precision.unsupported_reason(self.precision, self.device.type, found.capability)
        self._apply_precision()
        return {
            "device": to_json(found.device), "host": to_json(found.host), "software": to_json(found.software),
            "settings": precision.settings(), "warnings": list(found.warnings), "busy": self.busy,
            "unsupported": unsupported, "launch_us": launch_us(self.meter),
        }

    def answer(self, order: dict[str, Any], progress: Callable[[str, int], None]) -> dict[str, Any]:
        """What an order asks for, or why it failed. Never raises, except for a UserError."""
        acts: dict[str, Callable[[], dict[str, Any]]] = {
            "entry": lambda: self._entry(order), "profile": lambda: self._profile(order, progress),
            "capture": lambda: self._capture(order, progress),
            "open": lambda: self._open(order), "kernels": lambda: self._kernels(order, progress),
            "base": lambda: self._base(order), "keep": lambda: self._keep(order), "trial": lambda: self._trial(order),
        }
        try:
            return acts[order["do"]]()
        except UserError:
            raise
        except Exception as error:
            no_memory = reasons.out_of_memory(error, self.device.type)
            reason = no_memory or reasons.of_error(error)
            retire = no_memory is None and self.on_cuda and reasons.poisons_process(error)
        if not retire:
            self._give_memory_back()
        return {"error": reason, "retire": retire}

    def _give_memory_back(self) -> None:
        gc.collect()
        if self.on_cuda:
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()

    # --- the tracker ---

    def _entry(self, order: dict[str, Any]) -> dict[str, Any]:
        model = own.load_entry(order["entry"], seed=order["seed"], device=str(self.device))
        return {"work": to_json(model.work_key())}

    def _profile(self, order: dict[str, Any], progress: Callable[[str, int], None]) -> dict[str, Any]:
        """Unprofiled passes first, since nothing that times may come after a profile; then the op table of one."""
        progress("build", 0)
        work: WorkKey = from_json(WorkKey, order["work"], "work")
        self.subject = op_capture.build_subject(work, self.precision, self.device, order["seed"], order["checkouts"],
                                                order["weights"], order.get("entry"))
        call = self.subject.call
        pass_ms: list[float] = []
        start = time.monotonic()
        while len(pass_ms) < _PASSES + 1 and (len(pass_ms) < 2 or time.monotonic() - start < order["passes_s"]):
            progress("pass", len(pass_ms))
            self.clock.synchronize()
            begun_ms = self.clock.now_ms()
            call()
            self.clock.synchronize()
            pass_ms.append(self.clock.now_ms() - begun_ms)
        progress("profile", 0)
        if self.on_cuda:  # the first one pays for loading CUPTI
            profile.record(call, self.subject.model, self.clock, with_shapes=True, on_cuda=True)
        events, profiled_ms = self._recorded(call, self.subject.model)
        table = profile.read_trace(events, self.on_cuda)
        return {"pass_ms": pass_ms[1:], "profiled_ms": profiled_ms, "kernel_busy_ms": table.kernel_busy_ms,
                "ops": [to_json(op) for op in profile.limited(table.ops)]}

    def _recorded(self, call: Callable[[], object], model: Any) -> tuple[list[Any], float]:
        """A profiled call that did see the device: behind a teardown of CUPTI, every other one does not."""
        for _ in range(_PROFILE_TRIES):
            events, wall_ms = profile.record(call, model, self.clock, with_shapes=True, on_cuda=self.on_cuda)
            if not self.on_cuda or profile.saw_device(events):
                return events, wall_ms
        raise RuntimeError("the profiler recorded no work of the device")

    def _capture(self, order: dict[str, Any], progress: Callable[[str, int], None]) -> dict[str, Any]:
        if self.subject is None:
            raise RuntimeError("no tracker was built")
        progress("number", 0)
        numbered = op_capture.numbered_calls(self.subject, self.clock)
        wanted = {key: numbered[key] for key in order["keys"] if key in numbered}
        progress("copy", 0)
        files, notes = op_capture.copy_calls(self.subject, wanted, Path(order["folder"]))
        for key in order["keys"]:
            if key not in wanted:
                notes[key] = "no call of an op with these arguments was found"
        self.subject = None
        self._give_memory_back()
        return {"files": {key: str(path) for key, path in files.items()},
                "notes": {key: reasons.clean(text) for key, text in notes.items()}}

    # --- one op ---

    def _open(self, order: dict[str, Any]) -> dict[str, Any]:
        self._opened = self._expected = self._calls = None
        self._give_memory_back()
        self._apply_precision()
        exemplar = op_capture.Exemplar.load(Path(order["file"]))
        with self._mode():
            call = open_call(exemplar, self.precision, self.device)
            found = alternatives(call, Platform(self.on_cuda, self.found.capability))
        self._opened = exemplar, call, {alternative.change: alternative for alternative in found}
        return {"alternatives": [{"change": one.change, "own_process": one.own_process} for one in found]}

    def _mode(self) -> AbstractContextManager[Any]:
        """As the tracker ran: inference mode, autocast if its precision is one."""
        stack = contextlib.ExitStack()
        stack.enter_context(torch.inference_mode())
        stack.enter_context(precision.autocast(self.precision, self.device.type))
        return stack

    def _now(self) -> tuple[op_capture.Exemplar, Call, dict[str, Alternative]]:
        if self._opened is None:
            raise RuntimeError("no op was opened")
        return self._opened

    def _expected_result(self) -> Any:
        if self._expected is None:
            exemplar, call, _ = self._now()
            fresh = open_call(exemplar, self.precision, self.device) if call.writes else call
            self._expected = copied(fresh.run())
        return self._expected

    def _base(self, order: dict[str, Any]) -> dict[str, Any]:
        _, call, _ = self._now()
        with self._mode():
            agreement = None
            if order.get("reference"):
                reference = torch.load(order["reference"], map_location=self.device, weights_only=True)
                arithmetic = own_arithmetic(call, self.on_cuda)
                agreement = asdict(compare(reference, flat_tensors(self._expected_result()), arithmetic))
            self._calls = self._calls or self.meter.calls_per_sample(call.run)
            samples = self.meter.samples(call.run, self._calls, order["budget_s"], order["cold"])
        return {"samples_ms": list(samples), "agreement": agreement}

    def _keep(self, order: dict[str, Any]) -> dict[str, Any]:
        """The op's result in a file, for a process that computes it its own way. Raises MemoryError beyond a limit."""
        with self._mode():
            tensors = flat_tensors(self._expected_result())
        if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > _REFERENCE_BYTES:
            raise RuntimeError("the result is too large to be handed to another process")
        torch.save([tensor.detach().cpu() for tensor in tensors], order["file"])
        return {}

    def _trial(self, order: dict[str, Any]) -> dict[str, Any]:
        exemplar, call, found = self._now()
        alternative = found[order["change"]]
        arithmetic = coarser(own_arithmetic(call, self.on_cuda), alternative.arithmetic)
        try:
            with self._mode():
                expected = self._expected_result()
                fresh = open_call(exemplar, self.precision, self.device) if call.writes else call
                with alternative.setting():
                    function = alternative.make(fresh)
                    agreement = self._compared(expected, function(), arithmetic)
                self._calls = self._calls or self.meter.calls_per_sample(call.run)
                with alternative.setting():
                    calls = self.meter.calls_per_sample(function)
                before, after = self.meter.alternate((call.run, self._calls), (function, calls), order["budget_s"],
                                                     order["cold"], alternative.setting)
        finally:
            self._apply_precision()  # whatever an alternative left behind
        return {"before_ms": list(before), "after_ms": list(after), "agreement": asdict(agreement)}

    def _compared(self, expected: Any, found: Any, arithmetic: str) -> Agreement:
        try:
            return compare(expected, found, arithmetic)
        except Exception as error:
            if reasons.out_of_memory(error, self.device.type) is None:
                raise
        self._give_memory_back()  # in double precision both need twice their memory; the host has more
        return compare([tensor.cpu() for tensor in flat_tensors(expected)],
                       [tensor.cpu() for tensor in flat_tensors(found)], arithmetic)

    # --- kernels ---

    def _kernels(self, order: dict[str, Any], progress: Callable[[str, int], None]) -> dict[str, Any]:
        """Kernels, launches and device time of one call of each change. What fails is named with its reason.

        Short calls share one profiled pass; a long one, which may launch tens of thousands of kernels, gets its own,
        so that no trace grows beyond memory. On a CPU there are no kernels and nothing is profiled. What breaks the
        process is named as `culprit`, to be left out next time.
        """
        _, call, found = self._now()
        told: dict[str, dict[str, Any]] = {}
        if not self.on_cuda:
            return {"by_change": told}
        end = time.monotonic() + order["budget_s"]
        calls: dict[str, int] = {}
        long: list[str] = []
        with self._mode():
            for index, change in enumerate([AS_IT_IS, *order["changes"]]):
                progress("warm up", index)
                if index and time.monotonic() > end:
                    told[change] = {"error": "no time left"}
                    continue
                try:
                    with self._prepared(change, call, found) as function:
                        function()
                        once_ms = max(self.meter.sample_ms(function, 1), 1e-3)
                except Exception as error:
                    if reasons.poisons_process(error):
                        return {"culprit": change, "retire": True, "error": reasons.of_error(error)}
                    told[change] = {"error": reasons.of_error(error)}
                    self._give_memory_back()
                    continue
                calls[change] = min(_MOST_PROFILED_CALLS, max(1, math.ceil(_PROFILED_MS / once_ms)))
                if once_ms >= _LONG_MS:
                    long.append(change)
                elif change == AS_IT_IS:
                    calls[COLD] = calls[change]
            passes = [[change] for change in long]
            passes.insert(1 if AS_IT_IS in long else 0, [change for change in calls if change not in long])
            for index, names in enumerate(part for part in passes if part):
                progress("profile", index)
                if index and time.monotonic() > end:
                    break
                told.update(self._profiled(names, calls, call, found))
        return {"by_change": told}

    def _profiled(
        self, names: list[str], calls: Mapping[str, int], call: Call, found: Mapping[str, Alternative]
    ) -> dict[str, dict[str, Any]]:
        """One profiled pass over some changes, each under a stage of its own."""
        def everything() -> None:
            for place, change in enumerate(names):
                with _range(_ASIDE), self._prepared(AS_IT_IS if change == COLD else change, call, found) as function:
                    for _ in range(calls[change]):
                        if change == COLD:
                            self.meter.clear_cache()
                        with _range(str(place)):
                            function()

        events, _ = self._recorded(everything, None)
        rows = profile.read_trace(events, True).ops
        told = {}
        for place, change in enumerate(names):
            own = [row for row in rows if row.stage == str(place)]
            told[change] = {
                "kernels": list(dict.fromkeys(kernel for row in own for kernel in row.kernels)),
                "launches": sum(row.launches or 0 for row in own) / calls[change],
                "device_ms": sum(row.device_ms or 0.0 for row in own) / calls[change],
            }
        return told

    @contextlib.contextmanager
    def _prepared(self, change: str, call: Call, found: Mapping[str, Alternative]) -> Any:
        """The function of a change, in its setting; that of the op as it is for the empty change."""
        if change == AS_IT_IS:
            yield call.run
            return
        alternative = found[change]
        try:
            with alternative.setting():
                yield alternative.make(call)
        finally:
            self._apply_precision()


def _range(name: str) -> AbstractContextManager[Any]:
    return torch.profiler.record_function(PROFILER_PREFIX + name)



def main() -> None:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    pipe = Pipe(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # prints of models and libraries must not mix with the answers
    orders = _orders()
    worker: OpWorker | None = None
    while True:
        order = orders.get()
        try:
            if order["do"] == "quit":
                return
            if order["do"] == "hello":
                worker = OpWorker(order["device"], order["precision"], bool(order["cudnn_benchmark"]))
                pipe.send({"type": "hello", **worker.hello()})
            elif worker is not None:
                pipe.send({"type": order["do"], **worker.answer(order, pipe.progress)})
        except UserError as error:
            pipe.send({"type": "user_error", "found": error.found, "expected": error.expected, "fix": error.fix})


if __name__ == "__main__":
    main()
