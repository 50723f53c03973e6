"""Mutated run files and files of other programs, many of them, through the reader of uploads and the ingester.

    python benchmarks/fuzz.py [--files 20000] [--imports 5000] [--batch 500] [--previews 200] [--seed 1]

Each batch is read by one child under the limits of an upload, then ingested into a database in memory. Prints crashes
(an exception that is no refusal, or a child that dies), half-stored lines, files on which the two readers differ, and
the peak memory of the children and of the ingesting process. Exit code 1 when any of them is not 0. Some files also
take the whole way of an upload, one child each. Files of other programs (`--imports`) are read with some answers; the
lines that they become are ingested, too, and must all be good.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
READER = ROOT / "core" / "store" / "read_upload.py"


def read_batch(folder: str, limits: dict[str, int]) -> None:
    """In the child: what every file of the folder holds, one JSON line each; the peak memory last."""
    spec = importlib.util.spec_from_file_location("read_upload", READER)
    assert spec is not None
    assert spec.loader is not None
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    reader.limit_process({**limits, "cpu_s": 600})
    for path in sorted(Path(folder).iterdir()):
        try:
            found = reader.look(str(path), limits)
            print(json.dumps({key: found.get(key) for key in ("refused", "lines", "bad_lines", "torn")}))
        except BaseException:
            print(json.dumps({"crash": traceback.format_exc()}))
    print(peak_kib())


def read_imports(folder: str, limits: dict[str, int], skip: int) -> None:
    """In the child: what `examine` says of each file of other programs in the folder; the peak memory last."""
    spec = importlib.util.spec_from_file_location("read_upload", READER)
    assert spec is not None
    assert spec.loader is not None
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    reader.limit_process({**limits, "cpu_s": 600})
    requests = json.loads((Path(folder) / "requests.json").read_text())
    for path in sorted(Path(folder).glob("*.upload"))[skip:]:
        name, answers = requests[path.name]
        try:
            found = reader.examine(str(path), {"limits": limits, "name": name, "sha": f"{path.stem:0>64}",
                                               "answers": answers, "received_at": "2026-11-30T10:00:00Z"})
            print(json.dumps({"refused": found.get("refused"), "import": "import" in found,
                              "lines": found.get("import_lines")}), flush=True)
        except BaseException:
            print(json.dumps({"crash": traceback.format_exc()}), flush=True)
    print(peak_kib())


def peak_kib() -> int:
    """Peak resident memory of this program (ru_maxrss would still hold that of the parent, from before the exec)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--imports", type=int, default=5_000, help="files of other programs")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--previews", type=int, default=200, help="files that take the whole way of an upload, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for files that fail")
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from mutations import mutated, partial_rows

    from core.errors import UserError
    from core.store import Store, queries, schema
    from core.store.ingest import Ingester
    from core.store.uploads import LIMITS, preview

    dice = random.Random(arguments.seed)
    counts: Counter[str] = Counter()
    child_kib = 0
    started = time.monotonic()
    for first in range(0, arguments.files, arguments.batch):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{n:06d}.jsonl" for n in range(min(arguments.batch, arguments.files - first))]
            for path in paths:
                path.write_bytes(mutated(dice))
            seen, peak = child(folder, LIMITS)
            child_kib = max(child_kib, peak)
            counts["crashes of the reader"] += len(paths) - len(seen)
            for path, found in zip(paths, seen, strict=False):
                counts["files"] += 1
                counts["crashes of the reader"] += "crash" in found
                counts[kind_of(found)] += 1
                if "crash" in found:
                    fail(arguments.keep, path, found["crash"])
            # The database keeps (run_id, seq) once, so each file is checked by what it brings beside the others.
            connection = schema.connect_memory()
            with Store(connection) as store:
                try:
                    ingester = Ingester(connection, files=paths)
                    ingester.cycle()
                    counts["half-stored lines"] += sum(partial_rows(store).values())
                    counts["files that the readers see differently"] += differing(store, paths, seen, arguments.keep)
                    for question in (queries.cells, queries.runs, queries.problems, queries.quarantine,
                                     queries.ceilings, queries.waiting, queries.unknown_lines):
                        question(store)
                except Exception:
                    counts["crashes of the ingester"] += 1
                    for path in paths:
                        fail(arguments.keep, path, traceback.format_exc())
            for path in paths[: max(1, arguments.previews * arguments.batch // arguments.files)]:
                try:
                    preview(path.read_bytes(), path.name)
                    counts["whole uploads: looked at"] += 1
                except UserError as error:
                    counts["whole uploads: refused in one sentence"] += 1
                    counts["refusals of several lines"] += "\n" in str(error)
                except Exception:
                    counts["crashes of the preview"] += 1
                    fail(arguments.keep, path, traceback.format_exc())
    child_kib = max(child_kib, fuzz_imports(arguments, dice, counts))
    counts["files a second"] = round(counts["files"] / (time.monotonic() - started))
    bad = ("crashes of the reader", "crashes of the ingester", "crashes of the preview", "half-stored lines",
           "files that the readers see differently", "refusals of several lines", "crashes of the importers",
           "lines of importers that cannot be stored")
    for name in (*bad, *sorted(counts.keys() - set(bad))):
        print(f"{name:<42}{counts[name]:>8}")
    print(f"{'peak memory of a child, MiB':<42}{child_kib / 1024:>8.0f}  (limit {LIMITS['memory_bytes'] >> 20})")
    print(f"{'peak memory of the ingesting process, MiB':<42}{peak_kib() / 1024:>8.0f}")
    return int(any(counts[name] for name in bad))


def fuzz_imports(arguments: argparse.Namespace, dice: random.Random, counts: Counter[str]) -> int:
    """Counts what happens to mutated files of other programs; the peak memory of a child in KiB."""
    from foreign import database, mutated
    from mutations import partial_rows

    from core.store import Store, schema
    from core.store.ingest import Ingester
    from core.store.uploads import LIMITS

    with tempfile.TemporaryDirectory() as folder:
        more = {"results.duckdb": database(Path(folder))}
    peak = 0
    for first in range(0, arguments.imports, arguments.batch):
        with tempfile.TemporaryDirectory() as folder:
            requests, paths = {}, []
            for number in range(min(arguments.batch, arguments.imports - first)):
                name, data, answers = mutated(dice, more)
                paths.append(Path(folder) / f"{number:06d}.upload")
                paths[-1].write_bytes(data)
                requests[paths[-1].name] = (name, answers)
            (Path(folder) / "requests.json").write_text(json.dumps(requests))
            seen: list[dict[str, Any]] = []
            while len(seen) < len(paths):
                more_seen, kib = child(folder, LIMITS, "--child-imports", len(seen))
                peak = max(peak, kib)
                seen += more_seen
                if len(seen) < len(paths):  # the child died: of this file, or of the address space of all before it
                    path = paths[len(seen)]
                    name, answers = requests[path.name]
                    seen.append(alone(path, name, answers, counts, arguments.keep))
            lines = []
            for path, found in zip(paths, seen, strict=False):
                counts["imports"] += 1
                counts["crashes of the importers"] += "crash" in found
                kind = "refused" if found.get("refused") else "taken in" if found.get("lines") else \
                    "questions open" if found.get("import") else "not recognised"
                counts[f"imports: {kind}"] += 1
                if "crash" in found:
                    fail(arguments.keep, path, found["crash"])
                if found.get("lines"):
                    lines.append(path.with_suffix(".jsonl"))
                    lines[-1].write_text(found["lines"], encoding="utf-8")
            connection = schema.connect_memory()
            with Store(connection) as store:
                try:
                    Ingester(connection, files=lines).cycle()
                    bad = store.frame("select count(*) as n from problem where what <> 'conflict'")["n"].iloc[0]
                    counts["lines of importers that cannot be stored"] += int(bad) + sum(partial_rows(store).values())
                except Exception:
                    counts["crashes of the ingester"] += 1
                    print(traceback.format_exc(), file=sys.stderr)
    return peak


def alone(
    path: Path, name: str, answers: dict[str, str], counts: Counter[str], keep: Path | None
) -> dict[str, Any]:
    """The file at which the child of a batch died, taken the whole way of an upload in a child of its own."""
    from core.errors import UserError
    from core.store.uploads import preview

    try:
        found = preview(path.read_bytes(), name, answers=answers)
    except UserError as error:
        counts["imports: child of a batch died, alone refused in one sentence"] += 1
        return {"refused": [str(error)]}
    except Exception:
        fail(keep, path, traceback.format_exc())
        return {"crash": traceback.format_exc()}
    counts["imports: child of a batch died, alone read"] += 1
    return {"lines": found.lines_text.decode() or None, "import": found.imported is not None}


def child(
    folder: str, limits: dict[str, int], mode: str = "--child", skip: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """What the child says of each file behind the first `skip` (fewer when it died), and its peak memory in KiB."""
    packages = ["-S"] if mode == "--child" else []  # a Parquet table needs pyarrow
    done = subprocess.run([sys.executable, "-I", *packages, __file__, mode, folder, json.dumps(limits), str(skip)],
                          capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
        return [json.loads(line) for line in lines if line.startswith("{")], 0
    return [json.loads(line) for line in lines[:-1]], int(lines[-1])


def kind_of(found: dict[str, Any]) -> str:
    if found.get("refused"):
        return "files: refused"
    if not found.get("lines"):
        return "files: no line could be used"
    return "files: bad lines beside good ones" if found["bad_lines"] or found["torn"] else "files: all lines good"


def differing(store: Any, paths: list[Path], seen: list[dict[str, Any]], keep: Path | None) -> int:
    """Files of which the ingester counted other lines than the child."""
    table = store.frame(
        "select file, s.problems - coalesce(sum(r.conflicts), 0) as bad, "
        "coalesce(sum(r.lines + r.duplicates + r.conflicts), 0) as good from source s "
        "left join source_run r using (source) group by s.file, s.problems"
    ).set_index("file")
    wrong = 0
    for path, found in zip(paths, seen, strict=False):
        if found.get("refused") or "crash" in found:
            continue
        torn = int(str(found["torn"]).startswith("the packed"))
        own = (int(table.loc[path.name, "good"]), int(table.loc[path.name, "bad"]))
        if own != (found["lines"], found["bad_lines"] + torn):
            wrong += 1
            fail(keep, path, f"child {found}, ingester {own}")
    return wrong


def fail(keep: Path | None, path: Path, why: str) -> None:
    print(f"{path.name}: {why}", file=sys.stderr)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{len(list(keep.iterdir())):04d}-{path.name}").write_bytes(path.read_bytes())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        read_batch(sys.argv[2], json.loads(sys.argv[3]))
    elif sys.argv[1:2] == ["--child-imports"]:
        read_imports(sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
