"""The command line: exit codes, one line per mistake, JSON and nothing else, and a sweep seen from a shell."""
from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.cli.run import forwarded
from core.records import RunsFolder, read_run_file
from core.store import open_app
from tests.builders import build_run, cell, encode_run, header

ROOT = Path(__file__).resolve().parent.parent
T4, H200 = "20261130-100000-00000001", "20261130-100000-00000002"


@dataclass
class Shell:
    """Runs commands against a database of its own, with two shipped runs: a T4 and an H200 four times as fast."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)"""
        self.capture.readouterr()
        code = main(list(arguments))
        out, err = self.capture.readouterr()
        return code, out, err

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments, "--json")
        assert (code, err) == (0, ""), err
        return json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))

    def mistake(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    shipped = tmp_path / "reference"
    build_run(shipped / "runs" / "t4.jsonl.gz", "t4", [cell(4), cell(2, precision="fp16")], run_id=T4)
    build_run(shipped / "runs" / "h200.jsonl", "h200-sxm-141gb", [cell(1), cell(1, precision="tf32")], run_id=H200)
    monkeypatch.setattr("core.store.store.reference_root", lambda: shipped)
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "results.duckdb"))
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


# --- mistakes and help -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "words"), [
    (["compare", "--baseline", "t4"], "--target"),
    (["compare", "--baseline", "t4", "--target", "h2000"], "one of NVIDIA H200"),
    (["compare", "--baseline", "t4", "--target", "a100"], "A100 SXM4 40GB has no stored run; expected one that has"),
    (["compare", "--baseline", "t4", "--target", "h200", "--precision", "fp31"], "unknown precision 'fp31'"),
    (["compare", "--baseline", "t4", "--target", "h200", "--tracker", "local5d"], "one of local4d"),
    (["explain"], "--baseline SEL and --target SEL, or --two"),
    (["explain", "--two", "T4=85s", "A100=1 banana"], "1 banana"),
    (["explain", "--two", "T4=-85s", "A100=1s"], "number above zero"),
    (["explain", "--two", "T4=85s", "A100=1s", "--frames", "3"], "--frames together with --two"),
    (["explain", "--two", "T4=85s", "A100=1s", "--precision", "fp32", "fp16"], "use --baseline-precision"),
    (["explain", "--baseline", "t4", "--target", "h200", "--os", "Windows"], "a fact about two numbers"),
    (["specs", "RTX 9999"], "no GPU called"), (["specs", "cpu"], "a CPU has no row"),
    (["export", "20261130-999999-ffffffff"], "is stored"), (["ingest", "nowhere.jsonl"], "no file nowhere.jsonl"),
    (["ingest", "--dry-run"], "a file to look at"),
    (["run", "--tracker", "local5d"], "unknown tracker"), (["run", "--precision", "fp31"], "unknown precision"),
    (["run", "--resume", "nowhere.jsonl"], "no file nowhere.jsonl"),
    (["run", "--resume", "x.jsonl", "--frames", "3"], "--frames together with --resume"),
    (["run", "--preset", "quick", "--frames"], "--frames"),
    (["fly"], "invalid choice: 'fly'"), ([], "COMMAND"),
])
def test_a_mistake_is_one_line_and_exit_code_2(shell: Shell, arguments: list[str], words: str) -> None:
    assert words in shell.mistake(*arguments)


def test_an_unexpected_error_is_one_line_and_exit_code_1(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("core.answers.catalogue.specs", broken)
    code, out, err = shell("specs", "t4")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: RuntimeError: first second (")
    monkeypatch.setenv("GAPSCOPE_DEBUG", "1")
    assert "Traceback" in shell("specs", "t4")[2]


def test_help_names_every_command_and_only_those(shell: Shell) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = shell.capture.readouterr().out
    named = set(re.findall(r"^    (\w+)", text, re.MULTILINE))
    assert named == {
        "run", "ceilings", "doctor", "cost", "microscope", "collector", "ingest", "export", "runs", "specs", "compare",
        "explain", "predict", "report", "quarantine",
    }


def test_the_real_program_prints_json_alone_and_leaves_with_2(tmp_path: Path) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "core", *arguments], cwd=ROOT, capture_output=True, text=True,
                              check=False)

    answer = call("explain", "--two", "Tesla T4=85s", "NVIDIA A100-SXM4-40GB=0.5s", "--precision", "fp32", "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    found = json.loads(answer.stdout)
    assert found["measured_ratio"]["value"] == pytest.approx(170)
    assert found["expected"]["bandwidth"] == pytest.approx(4.86, abs=0.005)
    assert found["expected"]["fp32"] == pytest.approx(2.41, abs=0.005)
    assert found["norm"]["n"] > 1000
    assert found["verdict"] == "beyond_hardware"
    wrong = call("specs", "RTX 9999")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(("arguments", "expected"), [("specs T4", 0), ("specs T4 --json", 0), ("specs nothing", 2)])
def test_closed_outputs_are_no_failure(arguments: str, expected: int) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{shlex.quote(sys.executable)} -m core {arguments} {closed}"
        done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == expected, done.stderr
        assert "Traceback" not in done.stderr


def test_specs_and_two_numbers_load_neither_duckdb_nor_torch() -> None:
    code = (
        "import sys; from core.cli import main\n"
        "assert main(['specs', 't4', '--json']) == 0 and main(['explain', '--two', 'T4=85s', 'A100=0.5s']) == 0\n"
        "assert not {'torch', 'duckdb', 'streamlit', 'altair'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- answers ---------------------------------------------------------------------------------------------------------


def test_compare_and_explain_print_the_same_answer_as_text_and_json(shell: Shell) -> None:
    sides = ("--baseline", "t4", "--target", "h200")
    answer = shell.json("compare", *sides)
    assert answer["rows"][0]["speedup"]["value"] == pytest.approx(4)
    code, out, _ = shell("compare", *sides)
    assert code == 0
    assert " ".join(answer["headline"].split()) in " ".join(out.split())
    assert "3.33x to 4.80x" in out
    assert "1 cell only on the baseline: local4d:base, 47 frames of 256x256, 256 points, fp16" in " ".join(out.split())
    explained = shell.json("explain", *sides)
    assert explained["verdict"] == "undecided"
    code, out, _ = shell("explain", *sides)
    assert code == 0
    assert "encoder" in out
    assert "\nverdict   undecided" in out


def test_sides_without_common_work_are_an_answer_and_no_mistake(shell: Shell) -> None:
    path = build_run(shell.folder / "other.jsonl", "t4", [cell(3, work_changes={"frames": 3})],
                     run_id="20261130-110000-00000003")
    answer = shell.json("explain", "--baseline", str(path), "--target", "h200")
    assert answer["not_comparable_because"] == ["frames 3 against 47"]
    code, out, _ = shell("explain", "--baseline", str(path), "--target", "h200")
    assert (code, "not comparable" in out) == (0, True)


def test_specs_shows_values_with_sources(shell: Shell) -> None:
    answer = shell.json("specs", "A100 80GB")
    bandwidth = next(value for value in answer["values"] if value["field"] == "memory_bandwidth_gb_s")
    assert bandwidth["value"] in (1935, 2039)
    assert bandwidth["source"]
    assert next(peak for peak in answer["peaks"] if peak["precision"] == "tf32")["value"] == 156
    assert len(shell.json("specs")["gpus"]) > 100
    assert "not published" in shell("specs", "t4")[1]


# --- in and out ------------------------------------------------------------------------------------------------------


def test_a_file_goes_in_is_listed_and_comes_out_again(shell: Shell) -> None:
    run_id = "20261130-120000-00000009"
    path = build_run(shell.folder / "mine.jsonl", "t4", [cell(5), cell(status="oom", precision="fp16")], run_id=run_id,
                     label="mine")
    preview = shell.json("ingest", "--dry-run", str(path))
    assert (preview["files"][0]["cells"], preview["files"][0]["questions"]) == (2, [])
    assert run_id not in [run["run_id"] for run in shell.json("runs")["runs"]]
    taken = shell.json("ingest", str(path))["files"][0]
    assert (taken["stored_by"], taken["runs"][0]["gpu_key"]) == ("command", "t4")
    (row,) = [run for run in shell.json("runs")["runs"] if run["run_id"] == run_id]
    assert (row["label"], row["state"], row["ok"], row["failed"]) == ("mine", "done", 1, 1)
    assert "3 runs (1 of your own)" in shell("runs")[1]

    code, _, _ = shell("export", run_id, "--out", "copy.jsonl")
    assert code == 0
    assert (shell.folder / "copy.jsonl").read_bytes() == path.read_bytes()
    assert "exists already" in shell.mistake("export", run_id, "--out", "copy.jsonl")
    shell("export", "t4,precision=fp32", "--out", "some.jsonl.gz")
    assert [line.kind for line in read_run_file("some.jsonl.gz").lines] == ["run", "cell"]
    code, table, _ = shell("export", run_id, "--format", "csv")
    lines = table.splitlines()
    assert lines[0].startswith("run_id,seq,process")
    assert len(lines) == 1 + 3 + 1  # three repetitions and the cell that failed
    shell("export", run_id, "--out", "t.parquet")
    assert (shell.folder / "t.parquet").read_bytes()[:4] == b"PAR1"


def test_names_from_a_file_cannot_steer_the_terminal(shell: Shell, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[31mT4\u202e\r"
    run = encode_run("20261130-110000-00000009", [
        dataclasses.replace(
            header("t4"), label="a\nb\x1b[2J", device=dataclasses.replace(header("t4").device, name=evil),
        ),
        cell(work_changes={"tracker": f"t{evil}"}), cell(status="oom", reason=f"no {evil}", precision="fp16"),
    ])
    path = tmp_path / "evil.jsonl"
    path.write_bytes(run)
    sides = ["--baseline", str(path), "--target", str(path)]
    for arguments in (["ingest", str(path)], ["runs"], ["compare", *sides], ["explain", *sides],
                      ["compare", "--baseline", evil, "--target", "t4"], ["ingest", str(tmp_path / f"{evil}.jsonl")]):
        _, out, err = shell(*arguments)
        shown = (out + err).replace("\n", "")
        assert shown
        assert shown.isprintable() or not set(shown) & set("\x1b\x07\r\u202e"), arguments
    assert len([line for line in shell("runs")[1].splitlines() if "00000009" in line and "a b" in line]) == 1


def test_a_bad_file_keeps_no_good_one_out(shell: Shell) -> None:
    good = build_run(shell.folder / "good.jsonl", "t4", run_id="20261130-120000-00000009")
    bad = shell.folder / "bad.jsonl"
    bad.write_text("hello\n")
    code, out, err = shell("ingest", str(bad), str(good))
    assert (code, "good.jsonl: 1 run on Tesla T4" in out) == (2, True)
    assert err.startswith("error: bad.jsonl is no run file")
    assert "20261130-120000-00000009" in [run["run_id"] for run in shell.json("runs")["runs"]]
    assert "bad.jsonl is no run file" in shell.mistake("ingest", "--dry-run", str(bad))


def test_commands_answer_while_the_app_has_the_database(shell: Shell) -> None:
    with open_app():
        assert len(shell.json("runs")["runs"]) == 2
        assert shell.json("compare", "--baseline", "t4", "--target", "h200")["n"]["cells"] == 1
        mistake = shell.mistake("compare", "--baseline", "t4", "--target", "a100")
        assert "one that has: H200 SXM 141GB, Tesla T4" in mistake
        path = build_run(shell.folder / "live.jsonl", "t4", run_id="20261130-120000-00000009")
        assert shell.json("ingest", str(path))["files"][0]["stored_by"] == "app"
        assert "is held by the app" in shell("ingest")[1]


def test_two_run_files_need_no_database(shell: Shell) -> None:
    paths = [build_run(shell.folder / f"{gpu}.jsonl", gpu, [cell(scale)]) for gpu, scale in (("t4", 6), ("cpu", 3))]
    answer = shell.json("compare", "--baseline", str(paths[0]), "--target", f"{paths[1]},precision=fp32")
    assert answer["rows"][0]["speedup"]["value"] == pytest.approx(2)
    assert not (shell.folder / "results.duckdb").exists()


def test_ingest_without_a_file_makes_the_database(shell: Shell) -> None:
    code, out, _ = shell("ingest")
    assert (code, (shell.folder / "results.duckdb").exists()) == (0, True)
    assert out.startswith("results.duckdb is up to date. 2 runs (0 of your own) on 2 device types")


# --- run -------------------------------------------------------------------------------------------------------------

# Stands in for `core.measure run`: same options, same run file, a cell every tenth of a second.
_FAKE_RUNNER = """
import signal, sys, time
from pathlib import Path
sys.path[:0] = [{root!r}]
from core.records import End, Note, RunWriter
from tests.builders import cell, header
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
mode = options.get("--label")
if mode == "refuse":
    print("no CUDA device; expected a GPU; use --device cpu.", file=sys.stderr); sys.exit(2)
path = Path(options.get("--out") or Path(options["--runs"]) / options["--run-id"] / "run.jsonl")
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
writer = RunWriter(path, options["--run-id"])
writer.write(header("cpu")); writer.write(Note("plan", "3 cells", data={{"cells": 3}}))
for index, precision in enumerate(("fp32", "tf32", "fp16")):
    if stopped:
        break
    writer.write(Note("cell_started", precision, data={{"index": index, "total": 3}}))
    if mode == "die" and index:
        print("out of luck", file=sys.stderr); sys.exit(1)
    time.sleep(1.0 if mode == "slow" else 0.05)
    if precision == "tf32":
        writer.write(cell(status="unsupported", reason="a CPU has no TF32", precision=precision))
    else:
        writer.write(cell(40, cuda=False, precision=precision))
writer.write(End("stopped" if stopped else "done"))
"""


@pytest.fixture
def fake_runner(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Puts the fake in the place of the measuring process; returns the options that it was started with."""
    script = shell.folder / "fake_runner.py"
    script.write_text(_FAKE_RUNNER.format(root=str(ROOT)))
    seen: list[str] = []

    def command(module: str, *words: str) -> list[str]:
        assert (module, words[0]) == ("core.measure", "run")
        seen[:] = words[1:]
        return [sys.executable, str(script), *seen]

    monkeypatch.setattr("core.cli.follow.python_command", command)
    return lambda: seen


def test_a_sweep_is_followed_summed_up_and_set_beside_its_twin(
    shell: Shell, fake_runner: Callable[[], list[str]]
) -> None:
    code, out, err = shell("run", "--device", "cpu")
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert "local4d:base, 47 frames of 256x256, 256 points, fp32: 440 ms (n 3)" in said
    assert "fp16: 440 ms" in said
    assert "tf32: unsupported (a CPU has no TF32)" in said
    assert "Shipped twin: The Builder CPU 3000 took 10.0x as long as the Tesla T4" in said
    assert "Compare with it: python -m core compare --baseline 20261130-100000-00000001 --target 2" in said
    (run_id,) = RunsFolder(shell.folder / "runs").run_ids()
    assert fake_runner() == ["--device", "cpu", "--run-id", run_id, "--runs", str(shell.folder / "runs")]
    assert run_id in [run["run_id"] for run in shell.json("runs")["runs"]]


def test_a_run_as_json_is_one_document(shell: Shell, fake_runner: Callable[[], list[str]]) -> None:
    answer = shell.json("run", "--device", "cpu", "--out", "q.jsonl")
    assert (answer["state"], answer["file"], answer["device"]) == ("done", "q.jsonl", "Builder CPU 3000")
    assert {row["precision"]: row["median_ms"] for row in answer["cells"]} == {"fp32": 440, "fp16": 440, "tf32": None}
    assert "--out" in fake_runner()
    assert not (shell.folder / "results.duckdb").exists()
    code, out, _ = shell("run", "--device", "cpu", "--out", "r.jsonl")
    assert (code, "Take it in with:\n  python -m core ingest r.jsonl\n" in out) == (0, True)
    assert "q.jsonl exists already" in shell.mistake("run", "--device", "cpu", "--out", "q.jsonl")


def test_a_refusal_of_the_runner_is_its_one_line(shell: Shell, fake_runner: Callable[[], list[str]]) -> None:
    assert shell.mistake("run", "--label", "refuse") == (
        "error: no CUDA device; expected a GPU; use --device cpu.\n")


def test_a_runner_that_dies_is_a_failure_and_keeps_what_was_measured(
    shell: Shell, fake_runner: Callable[[], list[str]]
) -> None:
    code, out, err = shell("run", "--label", "die")
    assert code == 1
    assert "fp32: 440 ms" in out
    assert err.startswith("error: the measuring process ended with code 1: out of luck\n")
    assert "go on with:\n  python -m core run --resume" in err


def test_ctrl_c_stops_behind_the_running_cell(
    shell: Shell, fake_runner: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.cli import follow

    read = follow.Progress.read

    def interrupted(self: Any, path: Path) -> Any:
        new = read(self, path)
        if self.running == "fp32" and not getattr(self, "hit", False):
            self.hit = True
            os.kill(os.getpid(), signal.SIGINT)
        return new

    monkeypatch.setattr(follow.Progress, "read", interrupted)
    started = time.monotonic()
    code, out, err = shell("run", "--label", "slow")
    assert code == 0
    assert time.monotonic() - started < 3
    assert "Stopping after the running cell" in err
    assert "fp32: 440 ms" in out
    assert "The sweep was stopped; go on with: python -m core run --resume" in " ".join(out.split())
    assert "fp16: " not in out


def test_a_plan_starts_nothing(shell: Shell, fake_runner: Callable[[], list[str]]) -> None:
    plan = shell.json("run", "--preset", "quick", "--device", "cpu", "--plan")
    assert {item["precision"] for item in plan["cells"]} == {"fp32", "default", "tf32", "fp16", "bf16"}
    assert shell("run", "--preset", "quick", "--device", "cpu", "--plan")[1].startswith("tracker ")
    assert fake_runner() == []


def test_only_sweep_options_reach_the_runner() -> None:
    typed = ["run", "--db", "x.duckdb", "--preset", "quick", "--json", "--out=q.jsonl", "--frames", "8", "16"]
    assert forwarded(typed) == ["--preset", "quick", "--frames", "8", "16"]
