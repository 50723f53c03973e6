"""`collect.pyz`: what is in it, and a real sweep with it where nothing else of Gapscope is."""
from __future__ import annotations

import ast
import contextlib
import getpass
import hashlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.answers import collector
from core.cli import main as core_main
from core.errors import UserError
from core.measure import collect, plan
from core.records import Cell, Device, End, RunFile, RunsFolder, read_run_file
from core.store import Store, open_reading, queries
from core.store.uploads import accept
from tests.test_runner import FAKE_WORKER

ROOT = Path(__file__).resolve().parent.parent
RUN_ID = "20260714-153012-1a2b3c4d"
TINY = ["--tracker", "local4d:small", "--frames", "2", "--resolution", "32", "--points", "2", "--device", "cpu"]
PRECISIONS = ["fp32", "bf16", "tf32"]

# In every process of the sweep: what is neither standard library, torch with what it requires, nor numpy, is missing.
BARE_MACHINE = """
import os, sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
class Bare:
    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top.startswith("_") or top in os.environ["BARE_ALLOWED"].split(","):
            return PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Bare]
"""


# --- the archive -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(collector.build_collector()))


def test_the_same_sources_give_the_same_bytes(archive: zipfile.ZipFile) -> None:
    again = collector.build_collector.__wrapped__()
    assert again is not collector.build_collector()
    assert again == collector.build_collector()
    entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {(entry.date_time, entry.compress_type, entry.external_attr) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED, 0o100644 << 16)
    }


def test_it_holds_the_measuring_branch_and_nothing_else(archive: zipfile.ZipFile) -> None:
    expected = {"__main__.py", "core/__init__.py", "core/errors.py", "core/process.py", "core/units.py"}
    for part in ("gpus", "measure", "records", "trackers"):
        expected |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "core" / part).rglob("*.py")}
    expected |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "core" / "gpus" / "data").glob("*.csv")}
    assert set(archive.namelist()) == expected
    assert collector.is_collector(collector.build_collector())
    assert not collector.is_collector(b"PK not really")


def test_it_imports_only_torch_numpy_and_what_is_optional_and_is_python_3_10(archive: zipfile.ZipFile) -> None:
    allowed = {*sys.stdlib_module_names, "core", "torch", "numpy", "pynvml", "av"}
    parts = {"errors", "process", "units", "gpus", "measure", "records", "trackers"}
    for name in archive.namelist():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(archive.read(name), name, feature_version=(3, 10))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
            for found in names:
                assert found.partition(".")[0] in allowed, f"{name} imports {found}"
                if found.startswith("core."):
                    assert found.split(".")[1] in parts, f"{name} imports {found}"


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 9, 18)])
def test_an_old_python_is_told_in_one_sentence(
    archive: zipfile.ZipFile, version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit) as ended:
        exec(archive.read("__main__.py"), {"__name__": "__main__"})
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: this is Python {version[0]}.{version[1]} (")
    assert "expected 3.10 or newer" in error
    assert error.count("\n") == 1


# --- a real sweep with it --------------------------------------------------------------------------------------------


class Collected(NamedTuple):
    """What came of a sweep that was stopped by Ctrl-C and resumed."""

    path: Path
    stopped: RunFile  # the file as it was after the stop
    first: tuple[str, str]  # stdout, stderr
    second: tuple[str, str]
    environment: dict[str, str]

    @property
    def found(self) -> RunFile:
        return read_run_file(self.path)


def _required_by(*names: str) -> set[str]:
    """Top-level modules of these distributions and of all that they require."""
    wanted, todo = set[str](), list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in wanted:
            wanted.add(name)
            todo += [re.split(r"[^\w.-]", text)[0] for text in requires if "extra ==" not in text]
    return {
        module for module, owners in metadata.packages_distributions().items()
        if wanted & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
    }


def _seed_with_last(precision: str) -> str:
    """A seed under which this precision comes last, so that a stop in the cell before leaves it over."""
    for seed in range(100):
        parser = collect.parser()
        asked = plan.request_from(parser.parse_args([*TINY, "--precision", *PRECISIONS, "--seed", str(seed)]))
        if plan.expand(asked)[-1].workload.setting.precision == precision:
            return str(seed)
    raise AssertionError


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    base = tmp_path_factory.mktemp("machine")
    for name in ("carried", "here", "bare", "tmp"):
        (base / name).mkdir()
    program = base / "carried" / "collect.pyz"
    program.write_bytes(collector.build_collector())
    (base / "bare" / "sitecustomize.py").write_text(BARE_MACHINE)
    # A folder that happens to be called core must not stand in for the one in the archive.
    (base / "here" / "core").mkdir()
    (base / "here" / "core" / "__init__.py").write_text("raise RuntimeError('the wrong core')")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GAPSCOPE", "PYTHON"))}
    environment |= {
        "PYTHONPATH": str(base / "bare"), "BARE_ALLOWED": ",".join({"core", *_required_by("torch", "numpy")}),
        "TMPDIR": str(base / "tmp"), "OMP_NUM_THREADS": "1",
    }

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(program), *arguments], cwd=base / "here", env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )

    process = start(*TINY, "--precision", *PRECISIONS, "--seed", _seed_with_last("tf32"))
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and not any(
            path.read_bytes().count(b'"cell_started"') == 2 for path in (base / "here").glob("*.jsonl")
        ):
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # ended by itself: what follows shows why
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it, too
        first = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, first
    (path,) = (base / "here").glob("*.jsonl")
    stopped = read_run_file(path)
    command = shlex.split(first[0].split("go on with:\n")[1].splitlines()[0])
    assert command[:2] == ["python3", str(program)]
    again = start(*command[2:])
    second = again.communicate(timeout=60)
    assert again.returncode == 0, second
    assert sorted(p.name for p in (base / "here").iterdir()) == ["core", path.name], "something else was left behind"
    return Collected(path, stopped, first, second, environment)


def test_a_sweep_needs_nothing_but_torch_and_numpy(collected: Collected) -> None:
    found = collected.found
    assert not found.problems
    cells = {line.record.workload.setting.precision: line.record for line in found.lines
             if isinstance(line.record, Cell)}
    assert {name: cell.status for name, cell in cells.items()} == {"fp32": "ok", "bf16": "ok", "tf32": "unsupported"}
    assert len(cells["fp32"].wall_ms) >= 3
    assert cells["fp32"].ops
    assert sum(stage.flops or 0 for stage in cells["fp32"].stages) > 10**7
    for package in ("pandas", "duckdb", "streamlit", "rich"):
        assert package not in collected.environment["BARE_ALLOWED"].split(",")


def test_ctrl_c_ends_after_the_running_cell_and_resume_repeats_nothing(collected: Collected) -> None:
    assert "stopping after the running cell" in collected.first[1]
    before = [line.record for line in collected.stopped.lines if isinstance(line.record, Cell)]
    assert [cell.status for cell in before] == ["ok", "ok"]
    assert isinstance(collected.stopped.lines[-1].record, End)
    assert collected.stopped.lines[-1].record.state == "stopped"
    lines = collected.found.lines
    assert [line.record for line in lines if isinstance(line.record, Cell)][:2] == before
    assert [line.seq for line in lines] == list(range(len(lines)))
    assert isinstance(lines[-1].record, End)
    assert lines[-1].record.state == "done"
    assert "resume" not in collected.second[0]


def test_the_end_says_where_the_file_is_and_what_to_do_with_it(collected: Collected) -> None:
    header = collected.found.header
    assert header is not None
    assert collected.path.name == f"gapscope-cpu-{collected.found.lines[0].run_id}.jsonl"
    for out, err in (collected.first, collected.second):
        assert f"run file: {collected.path}\n" in out
        assert f"python -m core ingest {collected.path.name}\n" in out
        assert "Traceback" not in out + err
    assert "holds: 2 ok, 1 unsupported on " in collected.second[0]


def test_no_host_no_user_and_no_path_is_in_the_file(collected: Collected) -> None:
    text = collected.path.read_text()
    for word in (socket.gethostname(), socket.getfqdn(), str(ROOT), str(collected.path.parent), sys.prefix,
                 os.path.expanduser("~") + "/", "/home/", "collect.pyz"):
        assert word not in text, word
    assert f'"{getpass.getuser()}"' not in text


def test_the_file_gives_the_same_rows_by_command_and_by_upload(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    monkeypatch.setattr("core.store.store.reference_root", lambda: tmp_path / "nothing shipped")
    by_command, by_upload = (tmp_path / name / "results.duckdb" for name in ("command", "upload"))
    for database in (by_command, by_upload):
        database.parent.mkdir()
    assert core_main(["ingest", str(collected.path), "--db", str(by_command), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["ok"] == 2
    accept(RunsFolder.beside(by_upload), collected.path.read_bytes(), "carried home.jsonl")
    with open_reading(by_command) as one, open_reading(by_upload) as other:
        rows = [_rows(store) for store in (one, other)]
    assert len(rows[0]["cell"]) == 3
    for table, frame in rows[0].items():
        assert frame.equals(rows[1][table]), table


def _rows(store: Store) -> dict[str, Any]:
    """Every table of what was measured, and which line of the file it was; the source's name may differ."""
    tables = queries.all_rows(store)
    measured = ("line", "problem", "run", "cell", "sample", "stage", "op", "note", "run_end")
    return {name: tables[name].drop(columns=["source"], errors="ignore") for name in measured}


# --- mistakes and odd machines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("versions", "told"), [
    ({"torch": "2.1.0+cu121", "numpy": "1.26.4"}, None),
    ({"torch": "2.3.0", "numpy": "2.0.0"}, None),
    ({"torch": "2.13.0+cpu", "numpy": "2.4.0"}, None),
    ({"torch": "2.4.0a0+git1234", "numpy": None}, None),
    ({"torch": None, "numpy": "1.26.4"}, None),
    ({"torch": "local build", "numpy": "2.1.0"}, None),
    ({"torch": "2.0.1+cu118", "numpy": "1.24.0"}, "torch 2.0.1+cu118; expected torch 2.1 or newer"),
    ({"torch": "1.13.1", "numpy": "1.24.0"}, "expected torch 2.1 or newer"),
    ({"torch": "2.2.2", "numpy": "2.0.0"}, "pip install 'numpy<2'"),
    ({"numpy": "1.26.4"}, "has no torch; expected torch and numpy; start it with the python that has torch"),
    ({"torch": "2.1.0"}, "has no numpy; expected torch and numpy; run `python3 -m pip install numpy`"),
])
def test_what_is_missing_is_told_before_torch_is_loaded(versions: dict[str, str | None], told: str | None) -> None:
    def check() -> None:
        collect.check_packages(lambda name: name in versions, lambda name: versions[name])

    if told is None:
        check()
        return
    with pytest.raises(UserError) as error:
        check()
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_of_the_name_of_a_package_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gapscope_not_there").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.util.find_spec("gapscope_not_there") is not None
    assert not collect._has("gapscope_not_there")
    assert collect._has("json")


@pytest.mark.parametrize(("arguments", "words"), [
    (["plam"], "invalid choice: 'plam'"),
    (["--frames", "x"], "frames 'x'"),
    (["--json"], "expected `plan --json`"),
    (["--tracker", "nope"], "unknown tracker 'nope'"),
    (["--resume", "nothing.jsonl"], "no file nothing.jsonl"),
    (["--resume", "nothing.jsonl", "--frames", "8"], "--resume with --frames"),
    (["--out", "nofolder/x.jsonl"], "no folder 'nofolder'"),
    (["--out", "there.jsonl"], "there.jsonl exists already"),
])
def test_a_mistake_takes_one_line_and_exit_code_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAPSCOPE_RUNS", str(tmp_path / "locks"))
    (tmp_path / "there.jsonl").write_text("mine\n")
    assert collect.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
    assert (tmp_path / "there.jsonl").read_text() == "mine\n"


def test_a_folder_that_takes_no_file_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**how: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collect.tempfile, "NamedTemporaryFile", refuse)
    assert collect.main([]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: no file can be made in {tmp_path} (Read-only file system); expected a folder")
    assert "--out" in error


@pytest.mark.parametrize(("device", "name"), [
    (Device(type="cuda", name="Tesla T4", uuid_hash="x", memory_bytes=15 * 2**30), f"gapscope-t4-{RUN_ID}.jsonl"),
    (Device(type="cuda", name="NVIDIA Z9 (96 GB)", uuid_hash="x"), f"gapscope-nvidia-z9-96-gb-{RUN_ID}.jsonl"),
    (Device(type="cuda", name="../../x", uuid_hash="x"), f"gapscope-x-{RUN_ID}.jsonl"),
    (Device(type="cuda", name="\u00e9/\u4e2d", uuid_hash="x"), f"gapscope-gpu-{RUN_ID}.jsonl"),
    (Device(type="cpu", name="Intel(R) Xeon(R)", uuid_hash="x"), f"gapscope-cpu-{RUN_ID}.jsonl"),
])
def test_the_file_is_named_after_its_device(device: Device, name: str) -> None:
    assert collect.file_name(device, RUN_ID) == name


@pytest.fixture
def fake_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runner's fake worker on a fake CUDA card, without nvidia-ml-py."""
    (tmp_path / "worker.py").write_text(FAKE_WORKER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAPSCOPE_RUNS", str(tmp_path / "locks"))
    monkeypatch.setattr(collect, "_has", lambda name: name != "pynvml")
    monkeypatch.setattr(collect, "WORKER_COMMAND", (
        sys.executable, str(tmp_path / "worker.py"), "c" * 32, "0", "", str(tmp_path / "log")
    ))
    return tmp_path


def test_a_machine_without_nvml_is_measured_and_told_what_is_missing(
    fake_machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collect.main([]) == 0
    out, _ = capsys.readouterr()
    assert "no clocks, power and temperature: nvidia-ml-py is not installed" in out
    assert "--preset standard --budget 30m" in out
    assert len(list(fake_machine.glob("gapscope-fake-*.jsonl"))) == 1
    assert collect.main(["--precision", "fp32", "--out", "mine.jsonl"]) == 0
    assert "python -m core ingest mine.jsonl" in capsys.readouterr().out
    assert (fake_machine / "mine.jsonl").is_file()


def test_a_sweep_without_a_single_time_is_a_failure(fake_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thirteen_dies = ["--frames", "8", "--resolution", "32", "--points", "13", "--precision", "fp32"]
    assert collect.main(thirteen_dies) == 1
    out, err = capsys.readouterr()
    assert "holds: 1 failed on Fake" in out
    assert err == "error: no cell could be measured; the reasons are in the lines above and in the file\n"


def test_a_torch_that_does_not_load_is_told_in_one_line(
    fake_machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "import sys; sys.exit('ImportError: libcudnn.so.9: cannot open shared object file')"
    monkeypatch.setattr(collect, "WORKER_COMMAND", (sys.executable, "-S", "-c", broken))
    for _ in range(20):  # however the end of the process and the reading of its last words fall together
        assert collect.main([]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "libcudnn.so.9" in error
    assert "no measuring process could be started" in error
    assert not list(fake_machine.glob("*.jsonl"))


def test_torch_before_2_9_is_set_through_its_older_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for torch 2.1; that version itself is not installed here."""
    matmul, cudnn = types.SimpleNamespace(allow_tf32=False), types.SimpleNamespace(allow_tf32=True, benchmark=False)
    backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul), cudnn=cudnn)
    old = types.ModuleType("torch")
    old.__dict__.update(backends=backends, float16="float16", bfloat16="bfloat16", dtype=object, __version__="2.1.0")
    monkeypatch.setitem(sys.modules, "torch", old)
    spec = importlib.util.spec_from_file_location("precision_of_old_torch", ROOT / "core/measure/precision.py")
    assert spec is not None
    assert spec.loader is not None
    precision = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(precision)
    assert precision.API == "allow_tf32"
    assert precision.apply("fp32") == {"matmul_fp32": "ieee", "conv_fp32": "ieee"}
    assert (matmul.allow_tf32, cudnn.allow_tf32) == (False, False)
    assert precision.apply("tf32") == {"matmul_fp32": "tf32", "conv_fp32": "tf32"}
    assert (matmul.allow_tf32, cudnn.allow_tf32) == (True, True)
    assert precision.apply("default") == {"matmul_fp32": "ieee", "conv_fp32": "tf32"}
    assert not hasattr(matmul, "fp32_precision")


# --- the command that writes it --------------------------------------------------------------------------------------


def test_the_command_writes_it_and_replaces_only_its_own_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "collect.pyz"
    assert core_main(["collector", "--out", str(path)]) == 0
    out = capsys.readouterr().out
    assert path.read_bytes() == collector.build_collector()
    assert os.access(path, os.X_OK)
    for command in collector.commands():
        assert command["where"] in out
    with zipfile.ZipFile(path, "a") as older:
        older.writestr("older", "")
    assert core_main(["collector", "--out", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert answer["size_bytes"] == path.stat().st_size == len(collector.build_collector())
    assert sorted(tmp_path.iterdir()) == [path]
    path.write_text("my notes")
    assert core_main(["collector", "--out", str(path)]) == 2
    assert "is no collector" in capsys.readouterr().err
    assert path.read_text() == "my notes"
    assert core_main(["collector", "--out", str(tmp_path / "no" / "collect.pyz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_commands_for_other_machines_are_ones_that_it_takes() -> None:
    commands = collector.commands()
    assert [command["where"] for command in commands] == [
        "A plain shell", "Colab", "Slurm", "An air-gapped container"
    ]
    parser = collect.parser()
    for command in commands:
        calls = re.findall(r"^(?!#).*?python3 collect\.pyz(.*)$", command["text"], re.MULTILINE)
        assert calls, command
        for options in calls:
            plan.request_from(parser.parse_args(shlex.split(options)))


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_commands_are_valid_shell() -> None:
    text = "\n".join(command["text"] for command in collector.commands() if command["where"] != "Colab")
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
