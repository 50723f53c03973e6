"""Small files of other programs, one of each format, for the fuzz test and benchmarks/fuzz.py."""
from __future__ import annotations

import json
import random
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from builders import build_run, cell, op
from mutations import change

from core.records import RunsFolder
from core.store import open_reading


def _event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _parquet() -> bytes:
    stream = BytesIO()
    pq.write_table(pa.table({"model": ["a", "b"], "time_ms": [5.0, 6.0]}), stream)
    return stream.getvalue()


TRACE = {"deviceProperties": [{"id": 0, "name": "Tesla T4", "totalGlobalMem": 15843721216, "numSms": 40}],
         "traceEvents": [
             _event("cpu_op", "aten::mm", 1e15, 10, **{"External id": 1, "Input Dims": [[2, 2]],
                                                       "Input type": ["float"]}),
             _event("cuda_runtime", "cudaLaunchKernel", 1e15 + 1, 1, correlation=1),
             _event("kernel", "k", 1e15 + 5, 100, correlation=1, device=0),
             _event("user_annotation", "ProfilerStep#1", 1e15, 200)]}

SEEDS: dict[str, bytes] = {
    "trace.json": _json(TRACE),
    "report.json": _json({"forward": {"latency": {"unit": "s", "values": [0.5, 0.6]},
                                      "memory": {"max_allocated": 9.0}}}),
    "config.json": _json({"backend": {"model": "m", "device": "cuda", "dtype": "float16"},
                          "scenario": {"input_shapes": {"batch_size": 8}}, "environment": {"gpu": ["Tesla T4"]}}),
    "pytest.json": _json({"machine_info": {"cpu": {"brand_raw": "x"}}, "datetime": "2026-01-01T00:00:00",
                          "benchmarks": [{"fullname": "a", "stats": {"median": 0.1, "data": [0.1, 0.2]}}]}),
    "google.json": _json({"context": {"num_cpus": 4}, "benchmarks": [
        {"name": "a", "real_time": 1.5, "time_unit": "us"}, {"name": "b", "run_type": "aggregate",
                                                             "aggregate_name": "mean", "real_time": 2}]}),
    "pyperf.json": _json({"benchmarks": [{"runs": [{"values": [0.1], "warmups": [[1, 0.5]]}]}],
                          "metadata": {"unit": "second", "cpu_model_name": "x"}}),
    "asv.json": _json({"commit_hash": "f", "date": 1767225600000, "params": {"cpu": "x"},
                       "results": {"time_a": 0.5, "time_p": {"params": [["1", "2"]], "result": [1, None]}}}),
    "machine.json": _json({"m": {"arch": "x", "cpu": "y", "machine": "m"}}),
    "nvbench.json": _json({"devices": [{"id": 0, "name": "Tesla T4"}], "benchmarks": [{"name": "c", "states": [
        {"name": "N=1", "device": 0, "summaries": [{"tag": "nv/cold/time/gpu/mean",
                                                    "data": [{"name": "value", "value": "0.002"}]}]}]}]}),
    "system.json": _json({"accelerator_model_name": "H100", "accelerators_per_node": "8", "number_of_nodes": 1}),
    "summary.txt": b"MLPerf Results Summary\nSUT name : x\nScenario : Offline\nSamples per second: 50\n"
                   b"Result is : VALID\n",
    "info.txt": b"gpu_configs\nNumber of GPUs on current device : 4\nCUDA Version : 11.1\nDevice Name : A100\n",
    "nsys.csv": b"Processing [x] with [a/cuda_gpu_kern_sum.py]...\nTime (%),Total Time (ns),Instances,Avg (ns),Name\n"
                b'75.0,3000,3,1000.0,"gemm<float, 4>"\n25.0,1000,2,500.0,relu\n\n',
    "smi.csv": b"timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W], "
               b"clocks.sm [MHz], clocks_event_reasons.active\n"
               b"2026/09/30 04:00:00.000, 0, GPU-0, Tesla T4, 36 %, 1 MiB, 35.00 W, "
               b"585 MHz, 0x4\n2026/09/30 04:00:01.000, 1, GPU-1, Tesla T4, [N/A], 1 MiB, 35.00 W, 585 MHz, 0x0\n",
    "nvbench.csv": b"Benchmark,Device,Device Name,Skipped,N,GPU Time (sec),Noise\ncopy,0,Tesla T4,No,64,0.002,0.1\n",
    "ptlflow.csv": b"Model,InputH,InputW,Time(ms)-fp16,Memory(GB)-fp16,Time(ms)-fp32\nraft,500,1000,40.5,1.5,80\n",
    "metric.csv": b'metric,value,unit\ndevice,CUDA - NVIDIA L4,\nparameters,"268,098,176",\ntime,5.5,seconds\n',
    "Tesla T4_1_gpus__float_model_inference_benchmark.csv": b"resnet18,vgg16\n10.5,20\n11,21.5\n",
    "triton.csv": b"M,N,K,cuBLAS,Triton\n4096.0,4096.0,4096.0,17.1,4.0\n",
    "table.csv": b'model;gpu;"time (ms)";batch\na;Tesla T4;5,25;1\nb;cpu;1.234,5;8\n',
    "utf16.csv": b"\xff\xfe" + "model,time (ms)\na,5 us\nb,0.1\n".encode("utf-16-le"),
    "table.parquet": _parquet(),
}

ANSWERS: tuple[dict[str, str], ...] = (
    {}, {"gpu": "T4", "precision": "fp16"}, {"gpu": "2x A100", "precision": "fp32", "unit": "ms", "apart": "none"},
    {"gpu": "cpu", "precision": "default", "unit": "items/s", "time": "time (ms)", "task": "column: model"},
    {"gpu": "T4", "precision": "bf16", "unit": "TFLOPS", "batch": "8", "warmup": "1", "zone": "+02:00"},
)


def database(folder: Path) -> bytes:
    """A results.duckdb of two cells with ops; made once, since it costs a second."""
    build_run(RunsFolder(folder / "runs"), "t4", [cell(ops=(op(),)), cell(status="oom", precision="fp16")])
    with open_reading(folder / "results.duckdb", reference=folder / "nothing"):
        pass
    return (folder / "results.duckdb").read_bytes()


def mutated(dice: random.Random, more: dict[str, bytes] | None = None) -> tuple[str, bytes, dict[str, str]]:
    """(name, bytes, answers): one of the seeds after some changes, sometimes under another's name."""
    seeds = {**SEEDS, **(more or {})}
    name = dice.choice(list(seeds))
    data = seeds[name]
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        data = change(data, dice)
    return dice.choice((name, name, name, dice.choice(list(seeds)))), data, dice.choice(ANSWERS)
