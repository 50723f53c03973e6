"""Which stored cells are meant: `h200`, `h200,precision=fp32`, a run id, `a.jsonl,handicap.sm_count=40`.

A selection is a GPU (name or catalogue key, `cpu` for any CPU), a run id or the path of a run file, with optional
`,field=value` parts. The parts before the database (`parse_selection`, `parse_filters`) are plain text work;
`select` finds the cells.
"""
from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.errors import UserError
from core.records import ORIGINS, PRECISIONS, RunHeader, SettingKey, WorkKey, valid_run_id
from core.trackers.registry import parse_resolution

if TYPE_CHECKING:
    import pandas as pd

    from core.store import Store

WORK_FIELDS = tuple(f.name for f in dataclasses.fields(WorkKey) if f.name != "extra")
SETTING_FIELDS = tuple(f.name for f in dataclasses.fields(SettingKey) if f.name != "extra")
_INTEGER_FIELDS = {
    "frames", "height", "width", "points", "batch", "iterations", "query_chunk", "window", "items_per_run",
}
_YES_NO_FIELDS = {"cudnn_benchmark"}
_OTHER_FIELDS = ("resolution", "origin", "torch", "cuda", "driver", "board")
_NOTHING = {"none", "null", "-", ""}
_COMPARED_ORIGINS = ("measured", "imported")
"""What a bare selection takes; predicted and reported times only when `origin` asks for them."""

_FIELD_PART = re.compile(r",\s*(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(?P<value>[^,]*)$")


@dataclass(frozen=True)
class Selection:
    """What a person wrote, taken apart. `fields` maps a field (or `handicap.NAME`) to the value it must have."""

    text: str
    head: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def fixed_setting(self, name: str) -> tuple[bool, Any]:
        """Whether the selection fixes this setting, and to what. An unfixed handicap means: none."""
        if name == "handicap":
            parts = {key: value for key, value in self.fields.items() if key.split(".")[0] == "handicap"}
            return True, parts or {"handicap": None}
        return name in self.fields, self.fields.get(name)


@dataclass(frozen=True)
class Filters:
    """The filters of compare and explain; an empty tuple lets everything through."""

    tracker: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    resolution: tuple[tuple[int, int], ...] = ()  # (height, width)
    frames: tuple[int, ...] = ()
    points: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    execution: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison: its ok cells, its failed ones, and the store that holds their samples.

    `lines`: one row per cell line (one worker process), columns of `core.store.queries.cells`, the newest ok attempt
    per work key, setting key and method. `failed`: lines that ended otherwise and have no ok attempt in the selection.
    """

    selection: Selection
    kind: Literal["gpu", "run", "file"]
    label: str
    gpu_key: str | None
    lines: pd.DataFrame
    failed: pd.DataFrame
    store: Store
    assumptions: tuple[str, ...] = ()
    older: pd.DataFrame | None = None  # every ok line of the selection, the ones of older runs too

    @property
    def boards(self) -> int:
        """Distinct boards among the chosen cells."""
        return int(self.lines["uuid_hash"].nunique())


# --- text ------------------------------------------------------------------------------------------------------------


def parse_selection(text: str) -> Selection:
    """`HEAD[,field=value ...]` taken apart. Raises `UserError` for an empty head, an unknown field or a bad value."""
    rest, fields = text.strip(), {}
    while match := _FIELD_PART.search(rest):
        name, value = match["name"], match["value"].strip()
        for key, converted in _field(name, value).items():
            if key in fields:
                raise UserError(f"{name} is given twice in {text!r}", "each field once")
            fields[key] = converted
        rest = rest[: match.start()].rstrip()
    if not rest or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*\s*=.*", rest):
        raise UserError(
            f"no GPU, run or file in the selection {text!r}", "GPU name, run id or run file, then ,field=value",
            "for example h200,precision=fp32",
        )
    return Selection(text.strip(), rest, dict(reversed(fields.items())))


def _field(name: str, text: str) -> dict[str, Any]:
    """One `field=value` part as column -> value (`resolution` and `tracker:variant` give two)."""
    if name.startswith("handicap."):
        return {name: text}
    if name in ("resolution", "size"):
        height, width = parse_resolution(text)
        return {"height": height, "width": width}
    if name == "tracker" and ":" in text:
        tracker, variant = text.split(":", 1)
        return {"tracker": tracker, "variant": variant}
    if name not in (*WORK_FIELDS, *SETTING_FIELDS, *_OTHER_FIELDS):
        raise _unknown("field", name, (*WORK_FIELDS, *SETTING_FIELDS, *_OTHER_FIELDS, "handicap.NAME"))
    if text.lower() in _NOTHING:
        return {name: None}
    if name in _INTEGER_FIELDS:
        return {name: parse_count(text, name)}
    if name in _YES_NO_FIELDS:
        return {name: _yes_no(text, name)}
    if name == "precision":
        return {name: parse_choice(text, "precision", PRECISIONS)}
    if name == "origin":
        return {name: parse_choice(text, "origin", ORIGINS)}
    return {name: text}


def parse_filters(
    tracker: Iterable[str] | None = None,
    precision: Iterable[str] | None = None,
    resolution: Iterable[str] | None = None,
    frames: Iterable[str] | None = None,
    points: Iterable[str] | None = None,
    batch: Iterable[str] | None = None,
    execution: Iterable[str] | None = None,
    origin: Iterable[str] | None = None,
) -> Filters:
    """Filter words as typed -> `Filters`. Raises `UserError` naming the word and what is possible."""
    def counts(words: Iterable[str] | None, name: str) -> tuple[int, ...]:
        return tuple(parse_count(word, name) for word in words or ())

    return Filters(
        tracker=tuple(tracker or ()),
        precision=tuple(parse_choice(word, "precision", PRECISIONS) for word in precision or ()),
        resolution=tuple(parse_resolution(word) for word in resolution or ()),
        frames=counts(frames, "frames"), points=counts(points, "points"), batch=counts(batch, "batch"),
        execution=tuple(execution or ()),
        origin=tuple(parse_choice(word, "origin", ORIGINS) for word in origin or ()),
    )


def parse_count(text: str, name: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise UserError(f"{name} {text!r}", "a whole number")
    return int(text)


def parse_choice(text: str, name: str, choices: Sequence[str]) -> str:
    lowered = text.strip().lower()
    if lowered not in choices:
        raise _unknown(name, text, choices)
    return lowered


def _yes_no(text: str, name: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if text.lower() not in words:
        raise UserError(f"{name}={text}", "true or false")
    return words[text.lower()]


def _unknown(what: str, word: str, choices: Iterable[str], fix: str = "") -> UserError:
    """The error for a name that nothing carries: the nearest ones first, all of them where they are few."""
    names = list(dict.fromkeys(choices))
    by_lower = {name.lower(): name for name in names}
    nearest = [by_lower[near] for near in difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)]
    shown = nearest or names[:8]
    expected = f"{'one of ' if len(shown) > 1 else ''}{', '.join(shown)}" if shown else ""
    return UserError(f"unknown {what} {word!r}", expected, fix)


# --- cells -----------------------------------------------------------------------------------------------------------


def select(store: Store, selection: Selection | str, filters: Filters | None = None) -> Side:
    """The cells of a selection, filtered, newest ok attempt per work key, setting key and method.

    Raises `UserError`: unknown GPU, run or tracker (with the nearest names), a catalogue card without stored runs
    (with the cards that have some), a file that is no run file, nothing left after the filters.
    """
    from core.store import queries

    chosen = parse_selection(selection) if isinstance(selection, str) else selection
    limits = filters or Filters()
    path = _file_of(chosen.head)
    assumptions: tuple[str, ...] = ()
    if path is not None:
        store = _file_store(path)
        cells, kind, gpu_key, label = queries.cells(store), "file", None, path.name
        if cells.empty:
            _raise_if_held(store, path.name, None)
            raise UserError(f"{path.name} holds no cell", "a run file with measured cells", "let its sweep finish one")
    else:
        everything = queries.cells(store)
        runs = everything[everything["run_id"] == chosen.head]
        if not runs.empty:
            cells, kind, gpu_key, label = runs, "run", None, chosen.head
        else:
            _raise_if_held(store, chosen.head, chosen.head)
            cells, gpu_key, label, assumptions = _cells_of_gpu(everything, chosen.head)
            kind = "gpu"
    if kind != "gpu" and cells["gpu_label"].nunique() == 1:
        label = f"{cells['gpu_label'].iloc[0]} ({label})"
        gpu_key = _text_or_none(cells["gpu_key"].iloc[0])
    _check_trackers(limits.tracker, cells)
    kept = _matching(cells, chosen, limits, any_origin=kind != "gpu")
    if kept.empty:
        raise UserError(
            f"{label} has {len(cells)} stored cells, but none passes {_filters_in_words(chosen, limits)}",
            _what_there_is(cells), "loosen the filters",
        )
    ok = kept[(kept["status"] == "ok") & ~kept["superseded"].astype(bool)]
    lines = newest_cells(ok)
    failed = _without_ok(kept[kept["status"] != "ok"], ok)
    return Side(chosen, kind, label, gpu_key, lines, failed, store, assumptions, ok)  # type: ignore[arg-type]


def _raise_if_held(store: Store, name: str, run_id: str | None) -> None:
    """Of a run, or a file, that is there but in quarantine: why it does not count."""
    from core.store import queries

    held = queries.quarantine(store)
    held = held[held["cells"] > 0] if run_id is None else held[(held["run_id"] == run_id) & (held["cells"] > 0)]
    if not held.empty:
        first = held.iloc[0]
        raise UserError(
            f"{name} is in quarantine ({first['found']}; {first['rule']})", first["expected"],
            "look at it, and release it with a reason: python -m core quarantine",
        )


def newest_cells(ok: pd.DataFrame) -> pd.DataFrame:
    """Of ok lines, those of the newest run per (work key, setting key, method): all its worker processes.

    Two runs are never pooled: their boards, clocks and software may differ.
    """
    if ok.empty:
        return ok
    key = ["work_key", "setting_key", "method"]
    last = ok.groupby([*key, "run_id"], as_index=False)[["at", "started_at"]].max()
    last = last.sort_values(["at", "started_at", "run_id"], na_position="first").drop_duplicates(key, keep="last")
    return ok.merge(last[[*key, "run_id"]], on=[*key, "run_id"]).sort_values(["work_key", "setting_key", "process"])


def _without_ok(failed: pd.DataFrame, ok: pd.DataFrame) -> pd.DataFrame:
    """Failed lines whose work and setting has no ok line; the newest one each."""
    key = ["work_key", "setting_key"]
    joined = failed.merge(ok[key].drop_duplicates(), on=key, how="left", indicator="found")
    left = joined[joined["found"] == "left_only"].drop(columns="found")
    return left.sort_values("at", na_position="first").drop_duplicates(key, keep="last")


def _file_of(head: str) -> Path | None:
    """The path, if the head looks like one; a missing file is told by the reader."""
    path = Path(head)
    if head.endswith((".jsonl", ".jsonl.gz")) or (path.is_file() and not _names_a_card(head)):
        return path
    if "/" in head and not _names_a_card(head):
        raise UserError(f"no file {path.name}", "a run file (.jsonl or .jsonl.gz)", "check the path")
    return None


def is_file(selection: Selection) -> bool:
    """True for a selection of a run file, which needs no database."""
    return selection.head.endswith((".jsonl", ".jsonl.gz"))


def runs_wanted(selections: Sequence[Selection]) -> Callable[[RunHeader, str], bool]:
    """(header, run id) -> whether a run can belong to one of these selections: what need not be read is spared."""
    from core.gpus import by_human_name
    from core.store.rows import gpu_identity

    words = {selection.head.lower() for selection in selections}
    keys: set[str | None] = set()
    for selection in selections:
        try:
            match = by_human_name(selection.head)
        except UserError:
            continue
        keys |= {gpu.key for gpu in (match.gpu, *match.alternatives)}

    def wanted(header: RunHeader, run_id: str) -> bool:
        device = header.device
        key, label = gpu_identity(device.type, device.name, device.memory_bytes, device.sm_count)
        names = {run_id, device.name.lower(), label.lower(), (key or "").lower()}
        return bool(words & names) or (key is not None and key in keys)

    return wanted


def _names_a_card(text: str) -> bool:
    from core.gpus import by_human_name

    try:
        by_human_name(text)
    except UserError:
        return False
    return True


def _file_store(path: Path) -> Store:
    """The file's rows in a store of their own (in memory), made by the same ingest code."""
    from core.store import open_files

    return open_files([path])


def _cells_of_gpu(cells: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str | None, str, tuple[str, ...]]:
    """Cells of the GPU that `name` means: its rows, catalogue key, label and what had to be assumed."""
    if name.lower() == "cpu":
        found = cells[cells["gpu_key"] == "cpu"]
        if found.empty:
            raise UserError("no CPU has stored runs", _one_with_runs(cells), "try: python -m core run --device cpu")
        labels = found["gpu_label"].unique()
        return found, "cpu", str(labels[0]) if len(labels) == 1 else "CPU", ()
    for column in ("gpu_key", "gpu_label", "device_name"):
        found = cells[cells[column].str.lower() == name.lower()]
        if not found.empty:
            return found, _text_or_none(found["gpu_key"].iloc[0]), str(found["gpu_label"].iloc[0]), ()
    return _by_catalogue_name(cells, name)


def _by_catalogue_name(cells: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str | None, str, tuple[str, ...]]:
    from core.gpus import by_human_name

    if valid_run_id(name) and re.match(r"\d{8}-\d{6}-", name):
        raise UserError(f"no run {name} is stored", "", "python -m core runs lists them")
    try:
        match = by_human_name(name)
    except UserError:
        raise _unknown_gpu(name, cells) from None
    if match.count != 1:
        raise UserError(f"{name!r} means {match.count} GPUs", "one GPU", "stored cells are of one board each")
    with_runs = [
        gpu for gpu in (match.gpu, *match.alternatives) if gpu.key and (cells["gpu_key"] == gpu.key).any()
    ]
    if not with_runs:
        raise UserError(f"{match.gpu.name} has no stored run", _one_with_runs(cells),
                        f'python -m core specs "{name}" shows its data sheet')
    gpu = with_runs[0]
    found = cells[cells["gpu_key"] == gpu.key]
    if gpu is match.gpu:
        # Cards of that name that are not stored are no doubt about which cells were meant.
        others = [other for other in with_runs if other is not gpu]
        assumed = (match.assumption,) if match.assumption and others else ()
    else:
        assumed = (f'"{name}" is read as {gpu.name}, the card of that name with stored runs.',)
    return found, gpu.key, str(found["gpu_label"].iloc[0]), assumed


def _unknown_gpu(name: str, cells: pd.DataFrame) -> UserError:
    """No card, run or file of that name: the nearest among stored and catalogued names."""
    from core.gpus import by_human_name
    from core.gpus.lookup import nearest_names

    stored = [str(value) for column in ("gpu_label", "device_name") for value in cells[column].dropna().unique()]
    near = difflib.get_close_matches(name.lower(), [label.lower() for label in stored], n=2, cutoff=0.5)
    names = [label for label in stored if label.lower() in near] + list(nearest_names(name))
    if not names:
        try:
            by_human_name(name)
        except UserError as error:
            return UserError(f"{name!r} is no GPU, run or run file", error.expected, _stored(cells))
    return UserError(f"{name!r} is no GPU, run or run file", f"one of {', '.join(dict.fromkeys(names))}",
                     _stored(cells))


def _stored(cells: pd.DataFrame) -> str:
    labels = _labels(cells)
    return f"stored runs are of {', '.join(labels)}" if labels else "no runs are stored yet"


def _one_with_runs(cells: pd.DataFrame) -> str:
    labels = _labels(cells)
    return f"one that has: {', '.join(labels)}" if labels else "some run (none is stored yet)"


def _labels(cells: pd.DataFrame) -> list[str]:
    return sorted(str(label) for label in cells["gpu_label"].dropna().unique())


def _check_trackers(names: Sequence[str], cells: pd.DataFrame) -> None:
    """An unknown tracker name is an error even where other filters would leave nothing."""
    from core.trackers import registry

    known = list(cells["tracker"].dropna().unique()) + list(registry.TRACKERS)
    for name in names:
        if name.split(":")[0] not in known:
            raise _unknown("tracker", name, sorted(known))


def _matching(cells: pd.DataFrame, selection: Selection, filters: Filters, any_origin: bool) -> pd.DataFrame:
    """Rows that the fields of the selection and the filters let through."""
    keep = cells["run_id"].notna()
    wanted = {name.split(".", 1)[1]: value for name, value in selection.fields.items() if name.startswith("handicap.")}
    if wanted:  # these handicaps and no others
        keep &= cells["handicap"].map(lambda text: handicap_parts(text) == wanted)
    for name, value in selection.fields.items():
        if not name.startswith("handicap."):
            column = cells["uuid_hash" if name == "board" else name]
            keep &= column.isna() if value is None else column == value
    if not any(name.split(".")[0] == "handicap" for name in selection.fields):
        keep &= cells["handicap"].isna()  # a handicapped board never stands for the board
    for name in ("precision", "frames", "points", "batch", "execution", "origin"):
        values = getattr(filters, name)
        if values:
            keep &= cells[name].isin(values)
    if filters.tracker:
        selectors = cells["tracker"] + (":" + cells["variant"]).fillna("")
        keep &= cells["tracker"].isin(filters.tracker) | selectors.isin(filters.tracker)
    if filters.resolution:
        fitting = cells["run_id"].isna()
        for height, width in filters.resolution:
            fitting |= (cells["height"] == height) & (cells["width"] == width)
        keep &= fitting
    if not filters.origin and "origin" not in selection.fields and not any_origin:
        keep &= cells["origin"].isin(_COMPARED_ORIGINS)
    return cells[keep]


def handicap_parts(text: str | None) -> dict[str, str]:
    """`cold_l2+sm_count=40`, also with ; between, or a JSON object -> {"cold_l2": "on", "sm_count": "40"}."""
    if not isinstance(text, str) or not text:
        return {}
    if text.startswith("{"):
        try:
            return {str(key): str(value) for key, value in json.loads(text).items()}
        except ValueError:
            return {}
    pairs = (part.partition("=") for part in re.split(r"[+;,\s]+", text))
    return {key.strip(): value.strip() or "on" for key, _, value in pairs if key.strip()}


def _filters_in_words(selection: Selection, filters: Filters) -> str:
    parts = [f"{name}={'none' if value is None else value}" for name, value in selection.fields.items()]
    for f in dataclasses.fields(filters):
        values = getattr(filters, f.name)
        if values:
            shown = [f"{v[0]}x{v[1]}" if isinstance(v, tuple) else str(v) for v in values]
            parts.append(f"{f.name} {'/'.join(shown)}")
    return ", ".join(parts) or "the default (origin measured or imported, no handicap)"


def _what_there_is(cells: pd.DataFrame) -> str:
    """The values that the stored cells have, so that the next try hits."""
    parts = []
    for name in ("tracker", "precision", "frames", "height", "points", "batch", "origin"):
        values = [str(value) for value in cells[name].dropna().unique()[:6]]
        if values:
            parts.append(f"{name} {'/'.join(values)}")
    return ", ".join(parts)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
