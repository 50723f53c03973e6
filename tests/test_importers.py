"""Every format of another program: what is understood, what is asked, the rows by hand-computed values, the traps.

The files are made here, in the shapes of real ones.
"""
from __future__ import annotations

import gzip
import json
import math
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import read_uploads_here

from core.analysis.telemetry_log import phases, states
from core.errors import UserError
from core.records import Cell, Note, RunHeader, decode_line
from core.store.uploads import Preview, preview

GPU = {"gpu": "RTX 3090", "precision": "fp16"}


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The child's work without a process for each file; tests/test_imports.py takes the whole way."""
    read_uploads_here(monkeypatch, tmp_path)


def read(name: str, content: str | bytes | Any, **answers: str) -> Preview:
    """The preview of a file with these answers; JSON values become JSON."""
    data = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else \
        json.dumps(content).encode()
    return preview(data, name, answers=answers)


def refusal(name: str, content: Any, **answers: str) -> str:
    with pytest.raises(UserError) as caught:
        read(name, content, **answers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def records(found: Preview) -> list[Any]:
    return [decode_line(raw).record for raw in found.lines_text.splitlines()]


def cells(found: Preview) -> list[Cell]:
    return [record for record in records(found) if isinstance(record, Cell)]


def headers(found: Preview) -> list[RunHeader]:
    return [record for record in records(found) if isinstance(record, RunHeader)]


def asked(found: Preview) -> list[str]:
    """What must be answered."""
    return [question.key for question in found.open_questions]


def said(found: Preview) -> str:
    assert found.imported is not None
    return " ".join(found.imported.said)


def times(found: Preview) -> dict[str, tuple[float, ...]]:
    return {cell.workload.work.tracker: tuple(round(t, 9) for t in cell.wall_ms) for cell in cells(found)}


# --- what holds for all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "[" * 100_000, "no JSON as a whole (nested too deeply)"),
        ("a.json", '{"a": 1,\n "b": }', "no JSON as a whole (Expecting value in line 2, column 7)"),
        ("a.json", '{"loss": 1, "epoch": 2}', "JSON in no shape that is known here (its keys: loss, epoch)"),
        ("a.csv", "T4,5\nL4,6\n", "no table either (line 1 holds numbers, and no line of words above says of what)"),
        ("a.csv", "a\nb\n", "no table either (no two of its first lines have equally many fields)"),
        ("a.csv", ",".join(f"c{n}" for n in range(3000)) + "\n" + ",1" * 2999 + "\n", "3000 columns; at most 2000"),
        ("a.csv", "x" * 600 + ",ms\na,1\n", "the name of a column has 600 characters; at most 500"),
        ("a.csv", "x" * 200_000 + ",ms\na,1\n", "a line of more than 131072 characters"),
        ("a.csv", "model,colour\na,red\nb,blue\n", "a table without a column of numbers (model, colour)"),
    ],
)
def test_what_nobody_knows_is_told_as_far_as_it_is_understood(name: str, content: str, said: str) -> None:
    sentence = refusal(name, content)
    assert said in sentence
    assert len(sentence) < 500


def test_a_key_given_twice_is_refused_but_in_the_events_of_a_trace() -> None:
    twice = '{"forward": {"latency": {"unit": "s", "values": [1], "values": [2]}}}'
    assert "a.json is an optimum-benchmark report in which an object has the key values twice" in refusal(
        "a.json", twice, **GPU)
    event = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"device": 0, "device": 0}}'
    assert "The key device stands twice" in said(read("t.json", '{"traceEvents": [' + event + "]}", **GPU))


def test_an_endless_number_costs_that_number_and_not_the_others() -> None:
    report = ('{"forward": {"latency": {"unit": "s", "values": [0.5, NaN, Infinity, 1e999]}, '
              '"throughput": {"unit": "samples/s", "value": Infinity}}}')
    found = read("a.json", report, **GPU)
    assert times(found) == {"a forward": (500.0,)}
    assert [(p.field, p.found) for p in found.problems] == [("forward.latency", "3 values")]


def test_metric_tables_are_one_kind_when_their_metrics_are_and_each_metric_stands_once() -> None:
    rows = "metric,value,unit\ndevice,CUDA - NVIDIA L4,\nload_time,100,seconds\nrun_time,100.5,seconds\n"
    found = read("a.csv", rows + "run_time_minutes,1.675,minutes\nload_time,7,seconds\n", precision="fp16")
    assert times(found) == {"a load_time": (100_000.0,), "a run_time": (100_500.0,)}
    assert [(p.line, p.found) for p in found.problems] == [(6, "the same metric again")]
    columns = [read("a.csv", text, precision="fp16").imported for text in (rows, rows.replace("run", "walk"))]
    assert columns[0] is not None
    assert columns[1] is not None
    assert columns[0].columns != columns[1].columns, "answers for one are no answers for the other"


def test_a_foreign_task_is_imported_and_can_equal_no_tracker() -> None:
    found = read("local4d.csv", "task,time (ms)\nlocal4d,5\nlocal4d,6\n", **GPU, apart="none")
    cell, header = cells(found)[0], headers(found)[0]
    assert (header.origin, header.device.name, header.label) == ("imported", "GeForce RTX 3090", "local4d.csv")
    assert (cell.workload.work.implementation, cell.workload.work.frames) == ("foreign", None)
    assert (cell.wall_ms, found.gpus) == ((5.0, 6.0), ("GeForce RTX 3090",))
    assert header.software.torch is None


def test_nothing_comes_in_before_what_must_be_known_is_answered() -> None:
    found = read("a.csv", "task,time (ms)\nx,5\n")
    assert (asked(found), found.lines, found.lines_text) == (["gpu", "precision"], 0, b"")
    for wrong, words in (({"gpu": "T4", "precision": "fp99"}, "precision=fp99"), ({"colour": "red"}, "colour")):
        assert words in refusal("a.csv", "task,time (ms)\nx,5\n", **wrong)


def test_the_same_file_with_the_same_answers_gives_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.store.uploads.now_utc", lambda: "2026-11-30T10:00:00Z")
    first, second = (read("a.csv", "task,ms\nx,5\n", **GPU, time="ms", unit="ms") for _ in range(2))
    assert first.lines_text == second.lines_text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x04}q\x00.", "a Python pickle, which is never loaded here, since loading runs code"),
        (b"PK\x03\x04torch", "what torch.save wrote is never loaded here"),
    ],
)
def test_what_runs_code_when_loaded_is_refused_with_the_way_to_export_it(data: bytes, words: str) -> None:
    sentence = refusal("m.pt", data)
    assert words in sentence
    assert "a CSV with a header" in sentence


# --- text: encodings, marks, units -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom"])
def test_a_byte_order_mark_is_no_part_of_a_name(encoding: str) -> None:
    text = "model,time (ms)\nresnet,5\n"
    data = b"\xff\xfe" + text.encode("utf-16-le") if encoding == "utf-16-le-bom" else text.encode(encoding)
    found = read("a.csv", data, **GPU)
    assert found.imported is not None
    assert found.imported.columns == ("model", "time (ms)")
    assert times(found) == {"resnet": (5.0,)}


def test_bytes_that_are_no_text_are_refused_with_their_line_and_never_read_as_latin_1() -> None:
    assert "no run file" in refusal("a.csv", "modèle,ms\nrésnet,5\n".encode("latin-1"))


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("model;time (ms)\na;5,25\nb;6,5\n", {"a": (5.25,), "b": (6.5,)}),  # decimal comma
        ("model;time (ms)\na;1.234,5\n", {"a": (1234.5,)}),  # and points between thousands
        ('model,time (ms)\na,"1,234,567"\nb,"12,345.5"\n', {"a": (1234567.0,), "b": (12345.5,)}),  # thousands
        ("model\ttime\na\t5 us\nb\t0.1 ms\n", {"a": (0.005,), "b": (0.1,)}),  # units in cells
        ("made by x\nanother line\n\nmodel,time (s)\na,2\n", {"a": (2000.0,)}),  # preamble
        ("# comment, with a comma\nmodel,time (ms)\na,2\n", {"a": (2.0,)}),
        ("model,time (ms)\na,[N/A]\nb,nan\nc,0\nd,-1\ne,7\n", {"e": (7.0,)}),  # missing is not 0
        ("model,fps\na,20\nb,0.0\n", {"a": (50.0,)}),  # a rate of 0 was not run
    ],
)
def test_numbers_are_read_as_they_are_meant(text: str, expected_ms: dict[str, tuple[float, ...]]) -> None:
    assert times(read("a.csv", text, **GPU)) == expected_ms


def test_a_comma_that_may_mean_either_is_asked_for() -> None:
    text = 'model,time (ms)\na,"1,234"\n'
    assert "decimal" in asked(read("a.csv", text, **GPU))
    assert times(read("a.csv", text, **GPU, decimal="decimal mark")) == {"a": (1.234,)}
    assert times(read("a.csv", text, **GPU, decimal="groups thousands")) == {"a": (1234.0,)}


def test_rows_left_out_are_named_with_their_line() -> None:
    found = read("a.csv", "model,time (ms)\na,5\nb,none of this\nc\nd,0\n", **GPU)
    assert [(p.line, p.found) for p in found.problems] == [(3, "none of this"), (4, "1 fields"), (5, "0")]


def test_a_unit_that_nobody_says_is_asked_for() -> None:
    found = read("a.csv", "model,wall\nx,5\n", **GPU)
    assert asked(found) == ["unit"]
    assert times(read("a.csv", "model,wall\nx,5\n", **GPU, unit="s")) == {"x": (5000.0,)}


def test_rows_alike_are_repetitions_only_when_a_person_says_so() -> None:
    text = "label,cap_w,warm_s,aborted\nt2i,175,10.5,0\nt2i,200,10.0,0\nt2i,250,9.0,1\n"
    assert asked(read("a.csv", text, **GPU)) == ["apart"]
    found = read("a.csv", text, **GPU, apart="cap_w")
    assert [(c.workload.work.variant, c.wall_ms, c.status) for c in cells(found)] == [
        ("cap_w 175", (10500.0,), "ok"), ("cap_w 200", (10000.0,), "ok"), ("cap_w 250", (), "failed")]
    assert cells(read("a.csv", text, **GPU, apart="none"))[0].wall_ms == (10500.0, 10000.0)


def test_columns_may_name_device_precision_and_batch() -> None:
    text = "model,gpu,dtype,batch,ms\nx,Tesla T4,float16,8,80\nx,A100,bfloat16,8,8\nx,cpu,double,1,900\n"
    found = read("a.csv", text, time="ms", unit="ms")
    assert [(h.device.type, h.device.name) for h in headers(found)] == [
        ("cuda", "Tesla T4"), ("cuda", "A100 SXM4 40GB"), ("cpu", "CPU, not named")]
    assert [(c.workload.setting.precision, c.workload.work.batch) for c in cells(found)] == [
        ("fp16", 8), ("bf16", 8), ("fp64", 1)]


def test_a_headerless_log_is_not_guessed_at() -> None:
    assert "no run file" in refusal("m.csv", "39, 0 %, 0 MiB\n41, 5 %, 10 MiB\n")


def test_parquet_is_read_as_a_table_and_its_footer_before_its_rows() -> None:
    def packed(table: pa.Table) -> bytes:
        stream = BytesIO()
        pq.write_table(table, stream)
        return stream.getvalue()

    found = read("a.parquet", packed(pa.table({"model": ["a", "b"], "time_ms": [5.0, None]})), **GPU)
    assert times(found) == {"a": (5.0,)}
    many = packed(pa.table({"x": pa.nulls(10_000_000, pa.int8())}))
    assert "a Parquet table of 10000000 rows" in refusal("a.parquet", many)
    assert "without rows of plain columns" in refusal("a.parquet", packed(pa.table({"x": [[1]]})))


# --- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "label", "count"),
    [
        ("LambdaCloud 4x V100 16GB", "Tesla V100 SXM2 16GB", 4), ("2x RTX 4090", "GeForce RTX 4090", 2),
        ("CUDA - NVIDIA GeForce RTX 4090", "GeForce RTX 4090", 1), ("A100-SXM4-40GB", "A100 SXM4 40GB", 1),
        ("Some Card 9000", "Some Card 9000", 1),
    ],
)
def test_counts_and_vendors_in_names_are_told_apart(name: str, label: str, count: int) -> None:
    found = read("a.csv", "model,time (ms)\nx,5\n", gpu=name, precision="fp16")
    assert found.gpus == (label,)
    assert cells(found)[0].workload.work.variant == (f"{count} GPUs" if count > 1 else None)


# --- torch.profiler --------------------------------------------------------------------------------------------------


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1 if cat != "kernel" else args.get("stream", 7),
            "ts": ts, "dur": dur, "args": args}


DEVICES = [{"id": n, "name": "NVIDIA A100-PG509-200", "totalGlobalMem": 42297524224, "computeMajor": 8,
            "computeMinor": 0, "numSms": 108} for n in range(8)]
START_US = 1_700_000_000_000_000
EVENTS = [
    {"ph": "M", "name": "process_name", "args": {"name": "x"}},
    event("cpu_op", "aten::conv2d", START_US, 100, **{"External id": 1, "Input Dims": [[1, 3, 8, 8], [4, 3, 3, 3], []],
                                                     "Input type": ["float", "float", ""]}),
    event("cpu_op", "aten::cudnn_convolution", START_US + 10, 80, **{"External id": 2}),
    event("cuda_runtime", "cudaLaunchKernel", START_US + 20, 5, correlation=11),
    event("cuda_runtime", "cudaLaunchKernel", START_US + 30, 5, correlation=12),
    event("cpu_op", "aten::relu", START_US + 200, 50, **{"External id": 3}),
    event("cuda_runtime", "cudaLaunchKernel", START_US + 210, 5, correlation=13),
    event("kernel", "k_conv" + "<long>" * 400, START_US + 100, 300, correlation=11, device=3, stream=7),
    event("kernel", "k_conv2", START_US + 300, 200, correlation=12, device=3, stream=8),  # overlaps by 100 us
    event("kernel", "k_relu", START_US + 900, 100, correlation=13, device=3, stream=7),
    event("gpu_memcpy", "Memcpy HtoD", START_US + 50, 10, device=3),
]
TRACE = {"schemaVersion": 1, "deviceProperties": DEVICES, "traceEvents": EVENTS, "traceName": "x"}


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_gives_kernels_busy_share_and_an_op_table(packed: bool) -> None:
    data = json.dumps(TRACE).encode()
    found = read("alexnet.pt.trace.json", gzip.compress(data) if packed else data, precision="fp32")
    cell, header = cells(found)[0], headers(found)[0]
    # 0 to 1000 us of wall; kernels 100 to 500 and 900 to 1000 us: their union, not their sum of 600 us
    assert (cell.wall_ms, cell.kernel_busy_ms, cell.profiled_wall_ms) == ((1.0,), 0.5, 1.0)
    assert cell.execution_path["kernels"] == 3
    assert cell.execution_path["runtime_calls"] == 3
    assert "busy 50 %" in said(found)
    assert header.started_at == "2023-11-14T22:13:20Z"
    assert cell.ops is not None
    table = {op.op: op for op in cell.ops}
    assert set(table) == {"aten::conv2d", "aten::relu"}, "children fold into the outermost operation"
    conv = table["aten::conv2d"]
    assert (conv.device_ms, conv.launches, conv.calls) == (0.5, 2, 1)
    assert (conv.shapes, conv.dtypes) == (((1, 3, 8, 8), (4, 3, 3, 3), ()), ("float", "float"))
    assert max(len(name) for name in conv.kernels) < 500


def test_of_eight_listed_devices_the_used_one_counts_and_an_engineering_name_is_asked_about() -> None:
    found = read("x.json", TRACE)
    assert found.imported is not None
    question = next(q for q in found.imported.questions if q.key == "gpu")
    assert (question.default, question.choices) == ("A100 SXM4 40GB", ("A100 SXM4 40GB", "NVIDIA A100-PG509-200"))
    assert "8 devices are listed; GPU 3 was used." in said(found)
    assert found.imported.assumed["gpu"] == "A100 SXM4 40GB"


def test_profiler_steps_are_the_passes_of_a_trace() -> None:
    steps = [event("user_annotation", f"ProfilerStep#{n}", START_US + at, 400) for n, at in ((5, 0), (6, 600))]
    found = read("x.json", {**TRACE, "traceEvents": [*EVENTS, *steps]}, precision="fp32")
    cell = cells(found)[0]
    # The kernel that starts at 300 us in the first step ends at 500 us: the step reaches to there.
    assert cell.wall_ms == (0.5, 0.4)
    assert cell.kernel_busy_ms == pytest.approx((0.4 + 0.1) / 2)


def test_a_trace_without_kernels_is_refused_with_the_way_to_write_one() -> None:
    only_host = [e for e in EVENTS if e.get("cat") != "kernel"]
    assert "a trace without any kernel" in refusal("x.json", {**TRACE, "traceEvents": only_host})


# --- nsys ------------------------------------------------------------------------------------------------------------

NSYS = """Generating SQLite file report.sqlite from report.nsys-rep
Processing [report.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000000,3,1000000.0,1000000.0,900000,1100000,100000.0,"void gemm<float, 4>(int, int)"
25.0,1000000,2,500000.0,500000.0,400000,600000,141421.4,relu

Processing [report.sqlite] with [/opt/nsys/reports/cuda_api_sum.py]...

Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
99.0,9000000,5,1800000.0,1000.0,900,9000000,100.0,cudaLaunchKernel
"""


def test_several_nsys_reports_in_one_file_are_told_apart() -> None:
    found = read("k.csv", NSYS, **GPU)
    cell = cells(found)[0]
    assert cell.ops is not None
    assert [(op.op, op.device_ms, op.launches) for op in cell.ops] == [
        ("void gemm<float, 4>(int, int)", 3.0, 3), ("relu", 1.0, 2)]
    assert (cell.status, cell.wall_ms, cell.kernel_busy_ms) == ("skipped", (), None), "no time of the pass is known"
    assert "cuda_api_sum, 1 rows: recognised, not taken in" in said(found)
    timed = cells(read("k.csv", NSYS, **GPU, time="5 ms"))[0]
    assert (timed.status, timed.wall_ms) == ("ok", (5.0,))
    assert "time=soon" in refusal("k.csv", NSYS, **GPU, time="soon")


# --- nvidia-smi ------------------------------------------------------------------------------------------------------

SMI = """timestamp, name, utilization.gpu [%], memory.used [MiB], power.draw [W], clocks.current.sm [MHz]
2026/09/30 04:00:00.000, Tesla T4, 0 %, 0 MiB, 12.00 W, 300 MHz
2026/09/30 04:00:01.000, Tesla T4, 36 %, 2309 MiB, 35.00 W, 585 MHz
2026/09/30 04:00:02.000, Tesla T4, 34 %, 2309 MiB, 36.00 W, 585 MHz
2026/09/30 04:00:03.000, Tesla T4, 98 %, 2309 MiB, 68.00 W, 990 MHz
2026/09/30 04:00:04.000, Tesla T4, 97 %, 2309 MiB, 69.50 W, 1005 MHz
2026/09/30 04:00:05.000, Tesla T4, 99 %, 2309 MiB, 55.00 W, 1590 MHz
2026/09/30 04:00:06.000, Tesla T4, 20 %, 2309 MiB, [N/A], 1590 MHz
"""


def log_of(found: Preview, run: int = 0) -> pd.DataFrame:
    notes = [record for record in records(found) if isinstance(record, Note) and record.event == "telemetry"]
    return pd.DataFrame(notes[run].data["columns"]).astype(float)


def test_a_log_gives_readings_in_the_units_of_their_names() -> None:
    found = read("smi.csv", SMI)
    assert (found.cells, found.gpus, headers(found)[0].started_at) == (0, ("Tesla T4",), "2026-09-30T04:00:00Z")
    log = log_of(found)
    assert log.loc[1, ["utilization_percent", "memory_used_bytes", "power_w", "sm_clock_mhz"]].tolist() == [
        36.0, 2309 * 2**20, 35.0, 585.0]
    assert math.isnan(log.loc[6, "power_w"]), "[N/A] is unknown, not 0"
    later = read("smi.csv", SMI, zone="+02:00")
    assert headers(later)[0].started_at == "2026-09-30T02:00:00Z"


def test_starved_and_capped_are_told_apart() -> None:
    log = log_of(read("smi.csv", SMI))
    assert states(log, 1590.0, 70.0).tolist() == ["idle", "starved", "starved", "capped", "capped", "busy", "light"]
    table = phases(log, 1590.0, 70.0).set_index("state")
    assert table.loc["starved", ["readings", "clock_mhz"]].tolist() == [2, 585.0]
    assert table.loc["capped", ["clock_mhz", "power_w"]].tolist() == [997.5, 68.75]
    assert states(log.drop(columns=["power_w"]), None, None).tolist() == [
        "idle", "light", "light", "busy", "busy", "busy", "light"], "without clock and limit neither is claimed"


def test_interleaved_gpus_need_a_column_that_tells_them_apart() -> None:
    rows = [f"2026/09/30 04:00:0{second}.000, {index}, GPU-{index}, Tesla T4, {10 * index} %, 300 MHz"
            for second in range(3) for index in range(2)]
    head = "timestamp, index, uuid, name, utilization.gpu [%], clocks.sm [MHz]"
    found = read("two.csv", "\n".join([head, *rows]) + "\n")
    assert [log_of(found, run)["utilization_percent"].tolist() for run in range(2)] == [[0.0] * 3, [10.0] * 3]
    assert len({header.device.uuid_hash for header in headers(found)}) == 2
    bare = [",".join(part for n, part in enumerate(line.split(",")) if n not in (1, 2)) for line in (head, *rows)]
    assert "the rows of several GPUs are interleaved" in refusal("two.csv", "\n".join(bare) + "\n")


@pytest.mark.parametrize("word", ["clocks_throttle_reasons.active", "clocks_event_reasons.active"])
def test_the_column_that_driver_535_renamed_is_read_under_both_names(word: str) -> None:
    text = f"timestamp, name, power.draw [W], {word}\n2026/09/30 04:00:00.000, Tesla T4, 70.0 W, 0x0000000000000004\n"
    assert log_of(read("s.csv", text))["throttle_bits"].tolist() == [4.0]


def test_a_log_without_header_is_refused_with_the_command_that_writes_one() -> None:
    text = "".join(line + "\n" for line in SMI.splitlines()[1:])
    assert "--format=csv" in refusal("smi.csv", text)


def test_a_logger_with_names_of_its_own_is_read_too() -> None:
    text = "ts,phase,index,temp_c,power_w,power_limit_w,mem_used_mib,util_pct\n1777907036.2,load,0,51,28.9,230,1,0\n"
    assert asked(read("g.csv", text)) == ["gpu"]
    log = log_of(read("g.csv", text, gpu="RTX 3090"))
    assert log.loc[0, ["at_s", "power_w", "power_limit_w", "memory_used_bytes"]].tolist() == [
        1777907036.2, 28.9, 230.0, 2**20]


# --- optimum-benchmark -----------------------------------------------------------------------------------------------

REPORT = {
    "load": {"memory": None, "latency": {"unit": "s", "values": [15.5]}, "throughput": None},
    "forward": {"memory": {"unit": "MB", "max_allocated": 2000.0}, "latency": {"unit": "s", "values": [0.5, 0.7]},
                "throughput": {"unit": "samples/s", "value": 106.7}},
}
CONFIG = {
    "name": "bert", "backend": {"name": "pytorch", "model": "bert-base", "task": "fill-mask", "device": "cpu",
                                "dtype": None},
    "scenario": {"name": "inference", "input_shapes": {"batch_size": 64, "sequence_length": 128}}, "launcher": {},
    "environment": {"cpu": " Intel Xeon", "gpu": ["Tesla T4"], "gpu_vram_mb": 16106127360},
}


def test_a_report_alone_asks_for_what_its_configuration_says() -> None:
    found = read("benchmark_report.json", REPORT)
    assert asked(found) == ["gpu", "precision"]
    done = read("benchmark_report.json", REPORT, **GPU, batch="64", task="bert")
    assert times(done) == {"bert load": (15500.0,), "bert forward": (500.0, 700.0)}
    assert [(c.workload.work.batch, c.peak_bytes) for c in cells(done)] == [(1, None), (64, 2_000_000_000)]


def test_a_gpu_listed_beside_a_cpu_run_is_not_what_ran() -> None:
    found = read("benchmark_config.json", CONFIG)
    assert found.imported is not None
    assert found.imported.facts == {"gpu": "cpu: Intel Xeon", "batch": "64", "task": "bert-base fill-mask 128 tokens"}
    cuda = {**CONFIG, "backend": {**CONFIG["backend"], "device": "cuda", "dtype": "float16"}}  # type: ignore[dict-item]
    on_gpu = read("benchmark_config.json", cuda)
    assert on_gpu.imported is not None
    assert (on_gpu.imported.facts["gpu"], on_gpu.imported.facts["precision"]) == ("Tesla T4", "fp16")


# --- benchmark programs ----------------------------------------------------------------------------------------------


def test_pytest_benchmark_gives_rounds_where_saved_else_the_median_as_stated() -> None:
    stats = {"min": 0.001, "max": 0.009, "mean": 0.003, "median": 0.002, "rounds": 7}
    rows = [{"name": "a", "fullname": "t.py::a", "options": {"warmup": False}, "stats": stats},
            {"name": "b", "fullname": "t.py::b", "options": {"warmup": True}, "stats": {**stats, "data": [0.1, 0.2]}}]
    value = {"machine_info": {"python_version": "3.11", "system": "Linux", "node": "secret-host"}, "benchmarks": rows,
             "datetime": "2026-08-15T00:01:46.250433", "version": "3.4.1"}
    found = read("0001_x.json", value, gpu="cpu", precision="default")
    assert times(found) == {"t.py::a": (2.0,), "t.py::b": (100.0, 200.0)}
    assert cells(found)[0].stop_rule == "median of 7 rounds, as the file states it"
    assert cells(found)[0].execution_path["stated_max_ms"] == 9.0
    assert "1 of them ran without warm-up" in said(found)
    assert headers(found)[0].started_at == "2026-08-15T00:01:46Z"
    assert b"secret-host" not in found.lines_text
    with_gpu = {**value, "benchmarks": [{**rows[0], "extra_info": {"gpu": "NVIDIA L4", "dtype": "bf16"}}]}
    assert read("0001_x.json", with_gpu).gpus == ("L4",)


def test_google_benchmark_keeps_aggregates_out_of_the_iterations() -> None:
    rows = [
        {"name": "a", "run_type": "iteration", "real_time": 10, "time_unit": "ns"},
        {"name": "a", "run_type": "iteration", "real_time": 12, "time_unit": "ns"},
        {"name": "a_mean", "run_name": "a", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 11,
         "time_unit": "ns"},
        {"name": "b_median", "run_name": "b", "run_type": "aggregate", "aggregate_name": "median", "real_time": 3,
         "time_unit": "us"},
        {"name": "b_cv", "run_name": "b", "run_type": "aggregate", "aggregate_name": "cv", "real_time": 0.01,
         "time_unit": "us"},
        {"name": "c", "error_occurred": True, "error_message": "no device"},
    ]
    value = {"context": {"date": "2026-08-02 17:44:46", "library_build_type": "debug"}, "benchmarks": rows}
    found = read("g.json", value, **GPU)
    assert times(found) == {"a": (0.00001, 0.000012), "b": (0.003,), "c": ()}
    assert [(c.status, c.reason) for c in cells(found)][2] == ("failed", "no device")
    assert "built for debugging" in said(found)


def test_pyperf_values_and_warm_ups_stay_apart() -> None:
    value = {"benchmarks": [{"runs": [{"values": [1e-3, 2e-3], "warmups": [[1, 5e-3]],
                                       "metadata": {"date": "2026-04-10 16:55:31"}}, {"values": [3e-3]}]}],
             "metadata": {"name": "timeit", "unit": "second", "cpu_model_name": "Builder CPU"}, "version": "1.0"}
    found = read("p.json", value)
    assert times(found) == {"timeit": (1.0, 2.0, 3.0)}
    assert (cells(found)[0].warmup_ms, found.gpus) == ((5.0,), ("Builder CPU",))
    in_bytes = {**value, "metadata": {"name": "m", "unit": "byte"}}
    assert "without a value in seconds" in refusal("p.json", in_bytes)


def test_asv_tells_failed_from_skipped_and_bytes_from_seconds() -> None:
    text = """{"commit_hash": "f", "date": 1767225600000, "params": {"cpu": "Xeon"}, "results": {
\t"time_a": 0.5, "time_skip": NaN, "m.time_fail": null, "m.mem_b": 344,
\t"m.time_p": {"params": [["1", "2", "3"]], "result": [1, 4, null]}}, "version": 1}"""
    found = read("asv.json", text, gpu="cpu")
    assert [(c.workload.work.tracker, c.workload.work.variant, c.wall_ms, c.status) for c in cells(found)] == [
        ("time_a", None, (500.0,), "ok"), ("time_skip", None, (), "skipped"), ("m.time_fail", None, (), "failed"),
        ("m.time_p", "1", (1000.0,), "ok"), ("m.time_p", "2", (4000.0,), "ok"), ("m.time_p", "3", (), "failed")]
    assert (headers(found)[0].started_at, found.gpus) == ("2026-01-01T00:00:00Z", ("Xeon",))
    assert "m.mem_b" in said(found)
    columns = {"commit_hash": "f", "result_columns": ["result", "params"], "results": {"time_a": [[0.25], []]}}
    assert times(read("asv2.json", columns, gpu="cpu")) == {"time_a": (250.0,)}
    machine = read("machine.json", {"m1": {"arch": "x86_64", "cpu": "Xeon", "machine": "m1"}})
    assert machine.imported is not None
    assert (machine.imported.facts_for, machine.imported.facts) == ("asv", {"gpu": "cpu: Xeon"})


def summary(tag: str, value: str) -> dict[str, Any]:
    return {"tag": tag, "data": [{"name": "value", "type": "float64", "value": value}]}


def test_nvbench_numbers_are_text_and_a_share_of_bandwidth_may_exceed_one() -> None:
    states = [
        {"name": "N=1", "device": 0, "summaries": [summary("nv/cold/time/gpu/mean", "0.002"),
                                                   summary("nv/cold/bw/global/utilization", "1.14")]},
        {"name": "N=2", "device": 0, "is_skipped": True, "skip_reason": "too large"},
    ]
    value = {"devices": [{"id": 0, "name": "NVIDIA GeForce RTX 3090"}, {"id": 1, "name": "Tesla T4"}],
             "benchmarks": [{"name": "copy", "states": states}]}
    found = read("nv.json", value, precision="fp32")
    assert [(c.workload.work.variant, c.wall_ms, c.status) for c in cells(found)] == [
        ("N=1", (2.0,), "ok"), ("N=2", (), "skipped")]
    assert found.gpus == ("GeForce RTX 3090",)
    assert "114% of the memory bandwidth" in said(found)
    table = ("Benchmark,Device,Device Name,Skipped,N,CPU Time (sec),GPU Time (sec),Noise,BWUtil\n"
             "copy,0,NVIDIA GeForce RTX 3090,No,64,0.003,0.002,0.01,0.9\n")
    assert [(c.workload.work.variant, c.wall_ms) for c in cells(read("nv.csv", table, precision="fp32"))] == [
        ("N=64", (2.0,))]


def test_mlperf_waits_in_a_queue_are_no_times_and_accuracy_runs_have_none() -> None:
    text = ("MLPerf Results Summary\nSUT name : PySUT\nScenario : Offline\nSamples per second: 50\n"
            "Result is : INVALID\nMean latency (ns) : 2653990953659\n")
    found = read("mlperf_log_summary.txt", text, gpu="8x H100", precision="fp8", task="bert")
    assert times(found) == {"bert Offline": (20.0,)}
    assert cells(found)[0].workload.work.variant == "8 GPUs"
    assert "does not count" in said(found)
    assert "without figures" in refusal("s.txt", "MLPerf Results Summary\nSUT name : x\nScenario : Offline\n")
    single = ("MLPerf Results Summary\nSUT name : x\nScenario : SingleStream\n90th percentile latency (ns) : 3000000\n"
              "Result is : VALID\n")
    assert times(read("s.txt", single, **GPU, task="b")) == {"b SingleStream": (3.0,)}
    system = read("system.json", {"accelerator_model_name": "NVIDIA H100", "accelerators_per_node": "8"})
    assert system.imported is not None
    assert system.imported.facts == {"gpu": "8x NVIDIA H100"}


# --- tables with a meaning -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gpu", "precision", "variant", "batch"),
    [
        ("GeForce RTX 2080 Ti_1_gpus__float_model_inference_benchmark.csv", "GeForce RTX 2080 Ti", "default", None, 12),
        ("A100-SXM4-40GB_4_gpus__half_model_train_benchmark.csv", "A100 SXM4 40GB", "fp16", "4 GPUs", 48),
        ("permodel_ms_GeForce_GTX_1080_Ti_single_inference.csv", "GeForce GTX 1080 Ti", "default", None, 12),
        ("TITAN Xp_1_gpus__double_model_inference_benchmark.csv", "TITAN Xp", "fp64", None, 12),
    ],
)
def test_per_model_files_are_named_after_gpu_count_and_precision(
    name: str, gpu: str, precision: str, variant: str | None, batch: int
) -> None:
    found = read(name, "resnet18,vgg19_bn\n18.5,31.0\n17.5,30.0\n", warmup="1")
    assert (found.gpus, asked(found)) == ((gpu,), [])
    cell = cells(found)[0]
    assert cell.workload.setting.precision == precision
    assert (cell.workload.work.variant, cell.workload.work.batch) == (variant, batch)
    assert (cell.warmup_ms, cell.wall_ms) == ((18.5,), (17.5,))


def test_the_gpus_of_a_machine_are_not_those_of_a_run() -> None:
    text = "benchmark start : 2021\ngpu_configs\n\nNumber of GPUs on current device : 4\nCUDA Version : 11.1\n" \
           "Device Name : A100-SXM4-40GB\n"
    found = read("system_info.txt", text)
    assert found.imported is not None
    assert (found.imported.facts, found.imported.facts_for) == ({"cuda": "11.1"}, "per-model")
    assert "The machine has 4 GPUs" in said(found)


def test_ptlflow_units_and_precisions_stand_in_the_column_names() -> None:
    text = ("Model,Params,FLOPs,InputH,InputW,InputPx,Time(ms)-fp16,Memory(GB)-fp16,Time(ms)-fp32,Memory(GB)-fp32\n"
            "raft,5.3,800,500,1000,500000,40.5,1.5,80.25,3\nccmr,10.8,4500,500,1000,500000,-1,,90,\n")
    assert asked(read("t.csv", text)) == ["gpu"]
    found = read("t.csv", text, gpu="RTX 3090", precision="fp32")
    rows = {(c.workload.work.tracker, c.workload.setting.precision): c for c in cells(found)}
    assert {key: c.wall_ms for key, c in rows.items()} == {
        ("raft", "fp16"): (40.5,), ("raft", "fp32"): (80.25,), ("ccmr", "fp32"): (90.0,)}
    assert rows["raft", "fp16"].peak_bytes == 1_500_000_000
    assert (rows["raft", "fp16"].workload.work.frames, rows["raft", "fp16"].workload.work.height) == (2, 500)


def test_triton_figures_need_their_unit_and_repeated_rows_are_repetitions() -> None:
    text = "M,N,K,cuBLAS,Triton\n4096.0,4096.0,4096.0,17.0,4.0\n4096.0,4096.0,4096.0,16.0,4.5\n"
    assert asked(read("m.csv", text)) == ["unit", "gpu", "precision"]
    found = read("m.csv", text, **GPU, unit="TFLOPS")
    assert [(c.workload.setting.execution, c.workload.work.variant) for c in cells(found)] == [
        ("cuBLAS", "M=4096, N=4096, K=4096"), ("Triton", "M=4096, N=4096, K=4096")]
    # 2 * 4096^3 / (17e12 per s)
    assert cells(found)[0].wall_ms[0] == pytest.approx(8.0846, rel=1e-4)
    assert cells(read("m.csv", text, **GPU, unit="ms"))[0].wall_ms == (17.0, 16.0)


def test_metric_tables_hold_words_beside_numbers_and_one_time_twice() -> None:
    text = ('metric,value,unit\ndevice,CUDA - NVIDIA GeForce RTX 4090,\nmodel_name,gemma,\ntest_type,finetune,\n'
            'timestamp,20260202_154201,\ntotal_parameters,"268,098,176",\nbatch_size,8,\nfp16,False,\n'
            'total_train_time,600,seconds\ntotal_train_time_minutes,10.0,minutes\nsamples_per_second,0.08,samples/s\n')
    found = read("m.csv", text)
    assert times(found) == {"gemma finetune total_train_time": (600000.0,)}
    assert (found.gpus, headers(found)[0].started_at) == (("GeForce RTX 4090",), "2026-02-02T15:42:01Z")
    assert cells(found)[0].workload.work.batch == 8
    assert "a rate of so few digits" in said(found)


# --- the real files --------------------------------------------------------------------------------------------------

SAMPLES = Path(__file__).resolve().parent.parent.parent / "shared" / "sample_files"
"""Real public files, where they lie beside the checkout: name -> (format, open questions, cells after answers, and
one value computed by hand)."""

EXPECTED: dict[str, tuple[str, list[str], int]] = {
    "asv_machine.json": ("asv machine description", [], 0),
    "asv_result.json": ("asv result", ["gpu"], 21),
    "comfyui-power-sweep-t2i-20260804.csv": ("table", ["time", "unit", "gpu", "precision", "apart"], 3),
    "comfyui-power-sweep-video-20260804.csv": ("table", ["time", "unit", "gpu", "precision", "apart"], 3),
    "google_benchmark_test1_run1.json": ("google-benchmark result", ["gpu", "precision"], 14),
    "metric_value_unit_GB10_llm_finetune.csv": ("metric, value, unit table", ["precision"], 2),
    "metric_value_unit_GB10_object_detection.csv": ("metric, value, unit table", [], 1),
    "metric_value_unit_GeForce_RTX_4090_llm_finetune.csv": ("metric, value, unit table", ["precision"], 2),
    "metric_value_unit_GeForce_RTX_4090_object_detection.csv": ("metric, value, unit table", [], 1),
    "mlperf_log_summary.txt": ("MLPerf inference summary", ["gpu", "precision"], 1),
    "mlperf_system.json": ("MLPerf system description", [], 0),
    "nsys_cuda_gpu_kern_sum.csv": ("Nsight Systems statistics", ["gpu", "precision"], 1),
    "nvidia_smi_query_t4.csv": ("nvidia-smi log", [], 0),
    "nvidia_smi_query_v100s.csv": ("nvidia-smi log", [], 0),
    "nvml_logger_gpu_monitor.csv": ("nvidia-smi log", ["gpu"], 0),
    "optimum_benchmark_config.json": ("optimum-benchmark configuration", [], 0),
    "optimum_benchmark_report.json": ("optimum-benchmark report", ["gpu", "precision"], 2),
    "permodel_ms_A100-SXM4-40GB_float_inference.csv": ("times per model, the GPU in the file name", [], 32),
    "permodel_ms_A100-SXM4-40GB_system_info.txt": ("system information of per-model times", [], 0),
    "permodel_ms_GeForce_GTX_1080_Ti_single_inference.csv": ("times per model, the GPU in the file name", [], 15),
    "permodel_ms_GeForce_RTX_2080_Ti_float_inference.csv": ("times per model, the GPU in the file name", [], 32),
    "permodel_ms_GeForce_RTX_2080_Ti_system_info.txt": ("system information of per-model times", [], 0),
    "permodel_ms_TITAN_Xp_float_inference.csv": ("times per model, the GPU in the file name", [], 32),
    "ptlflow_model_benchmark_rtx3090.csv": ("ptlflow table of models", ["gpu"], 160),
    "pyperf_timeit_strip.json": ("pyperf result", [], 1),
    "pytest_benchmark_0001.json": ("pytest-benchmark result", ["gpu", "precision"], 1),
    "torch_profiler_alexnet_trace.json.gz": ("torch.profiler trace", ["precision"], 1),
    "triton_perf_report_matmul.csv": ("Triton perf_report table", ["unit", "gpu", "precision"], 2),
}
ANSWERS = {"gpu": "RTX 3090", "precision": "fp16", "time": "warm_avg_s", "unit": "ms", "apart": "cap_w"}
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample files do not lie beside the checkout")


def sample(name: str, **answers: str) -> Preview:
    return preview((SAMPLES / name).read_bytes(), name, answers=answers)


@needs_samples
def test_every_real_file_is_one_of_the_expected() -> None:
    assert {path.name for path in SAMPLES.iterdir()} - {"README.md"} == set(EXPECTED)


@needs_samples
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_file_gives_its_format_its_questions_and_its_rows(name: str) -> None:
    title, questions, count = EXPECTED[name]
    found = sample(name)
    assert found.imported is not None
    assert (found.imported.title, asked(found)) == (title, questions)
    if found.imported.facts_for is not None:
        return
    unit = {"unit": "s"} if name.startswith("comfyui") else {}
    answers = {key: value for key, value in {**ANSWERS, **unit}.items() if key in questions}
    done = sample(name, **answers)
    assert (len(cells(done)), done.imported is not None and done.imported.left_out) == (count, 0)


@needs_samples
def test_the_real_figures_are_the_ones_computed_by_hand() -> None:
    trace = cells(sample("torch_profiler_alexnet_trace.json.gz", precision="fp32"))[0]
    assert (trace.execution_path["kernels"], trace.execution_path["runtime_calls"]) == (79, 361)
    pair = [{c.workload.work.tracker: float(pd.Series(c.wall_ms).median()) for c in cells(sample(
        f"permodel_ms_{gpu}_float_inference.csv"))} for gpu in ("GeForce_RTX_2080_Ti", "A100-SXM4-40GB")]
    ratios = {model: pair[0][model] / pair[1][model] for model in pair[0]}
    assert (min(ratios, key=ratios.__getitem__), round(min(ratios.values()), 2)) == ("densenet169 inference", 0.79)
    assert (max(ratios, key=ratios.__getitem__), round(max(ratios.values()), 2)) == ("vgg19_bn inference", 2.86)
    forward = cells(sample("optimum_benchmark_report.json", gpu="cpu", precision="default", batch="64"))[1]
    assert 64 * 10 / (sum(forward.wall_ms) / 1e3) == pytest.approx(5.6489, rel=1e-4)
    kernels = cells(sample("nsys_cuda_gpu_kern_sum.csv", **GPU))[0].ops
    assert kernels is not None
    assert (len(kernels), kernels[0].device_ms, sum(op.launches or 0 for op in kernels)) == (8, 99.385786, 513)
    table = phases(log_of(sample("nvidia_smi_query_t4.csv")), 1590.0, 70.0).set_index("state")
    assert table.loc["starved", "clock_mhz"] == 585.0
    assert table.loc["capped", ["clock_mhz", "power_w"]].tolist() == [1095.0, 67.02]
    mlperf = cells(sample("mlperf_log_summary.txt", **GPU))[0]
    assert mlperf.wall_ms[0] == pytest.approx(1e3 / 92.1544)
    assert cells(sample("ptlflow_model_benchmark_rtx3090.csv", gpu="RTX 3090"))[0].wall_ms == (406.862,)
