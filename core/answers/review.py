"""Pins for the review meeting: freeze an answer, ask the same question again, tell then from now.

A pin keeps the question (kind, sides, filters), so that it can be asked again when runs have come or gone.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from core import units
from core.answers import sentences
from core.answers.compare import compare
from core.answers.deciding import answered_words, deciding_runs, is_measurement, wanted_of
from core.answers.explain import explain
from core.answers.json_values import records
from core.answers.selection import Filters
from core.errors import UserError
from core.records import RunsFolder
from core.store import queries
from core.store.pins import MAX_FROZEN_BYTES, Pin, View, Words, add_pin, edit_pin, pins_of

if TYPE_CHECKING:
    from core.store import Store

Answer = dict[str, Any]
Ask = Callable[["Question"], list[Answer]]


@dataclass(frozen=True)
class Question:
    """`explain` of two sides, or `compare` of the first side with each of the others. `names`: the sides as shown."""

    kind: Literal["explain", "compare"]
    sides: tuple[str, ...]
    filters: Filters = field(default_factory=Filters)
    names: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "sides": list(self.sides), "names": list(self.names),
                "filters": {name: value for name, value in asdict(self.filters).items() if value}}


def question_of(stored: Mapping[str, Any]) -> Question:
    """A question as `Question.as_dict` wrote it. Raises `UserError` for what this version cannot ask."""
    try:
        filters: dict[str, Any] = {
            name: tuple(tuple(value) if isinstance(value, list) else value for value in values)
            for name, values in stored["filters"].items()
        }
        kind, sides = stored["kind"], tuple(str(side) for side in stored["sides"])
        if kind not in ("explain", "compare") or len(sides) < 2:
            raise ValueError(kind)
        return Question(kind, sides, Filters(**filters), tuple(stored.get("names") or ()))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError("a question that this version cannot ask", "explain or compare of two sides or more") from None


def ask(store: Store, question: Question) -> list[Answer]:
    """The answers as they are now: one for explain, one per target for compare. Raises `UserError` as `select`."""
    first, *others = question.sides
    if question.kind == "explain":
        return [explain(store, first, others[0], question.filters)]
    return [compare(store, first, other, question.filters) for other in others]


# --- pinning ---------------------------------------------------------------------------------------------------------


def pin_view(
    store: Store, runs: RunsFolder, page: str, query: Sequence[tuple[str, str]], question: Question, words: Words,
    *, actor: str = "",
) -> Pin:
    """Pin a view with its present answer. An empty command takes the one of the first finding. Raises `UserError`."""
    answers = ask(store, question)
    used = sorted({run for answer in answers for side in ("baseline", "target") for run in _runs(answer, side)})
    headers = queries.runs(store)
    methods = set(headers.loc[headers["run_id"].isin(used), "method"].tolist())
    view = View(
        page, tuple(query), question.as_dict(), tuple(freeze(answers)), tuple(used),
        int(methods.pop()) if len(methods) == 1 else None, data_version(store),
    )
    command = words.command.strip() or deciding_command(answers)
    return add_pin(runs, view, _with_command(store, view, words, command), actor)


def change_words(
    store: Store, runs: RunsFolder, pin: Pin, words: Words, *, base_version: int, actor: str = ""
) -> None:
    """Raises `StaleVersionError` when somebody changed the pin after `base_version`."""
    if words.command.strip() == pin.words.command:
        words = Words(**{**asdict(words), "wanted": pin.words.wanted})
    else:
        words = _with_command(store, pin.view, words, words.command)
    edit_pin(runs, pin.id, words, base_version=base_version, actor=actor)


def _with_command(store: Store, view: View, words: Words, command: str) -> Words:
    devices = [gpu for answer in view.answers for gpu in _devices(answer)]
    wanted = wanted_of(store, command, devices, _workload(view.answers))
    return Words(words.title, words.note, words.owner, words.status, command, wanted or None)


def deciding_command(answers: Sequence[Mapping[str, Any]]) -> str:
    """The measurement that the first finding asks for; "" where none asks for one."""
    return next((str(finding["command"]) for answer in answers for finding in answer.get("findings", ())
                 if is_measurement(str(finding.get("command") or ""))), "")


def headline_of(answers: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """The sentence of an answer; of several targets, the ratio of each against the one baseline."""
    if not answers:
        return ""
    if len(answers) == 1:
        return str(answers[0]["headline"])
    baseline = names[0] if names else str(answers[0]["baseline"]["label"])
    told = [f"{what.removeprefix('speedup, ')} {value}" for what, value in figures(answers, names)
            if what.startswith("speedup, ")]
    return f"Against {sentences.the(baseline)}: {', '.join(told)}." if told else "Nothing here is comparable."


def title_of(answers: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """A title to start from: the first sentence of the answer."""
    first = headline_of(answers, names).split(". ")[0].split(" (")[0].rstrip(".")
    return first if len(first) <= 120 else f"{first[:117]}..."


def data_version(store: Store) -> str:
    """A fingerprint of all runs that count: the same on every machine that has the same runs, or another."""
    table = queries.runs(store).sort_values("run_id")
    told = [[row[name] for name in ("run_id", "method", "ok", "failed", "quarantined")] for row in records(table)]
    return hashlib.sha256(json.dumps(told, default=int).encode()).hexdigest()[:12]


_LONG = ("op_diff", "other_cells", "environment", "microscope", "own_norm", "ladder", "stages", "not_assessed",
         "only_baseline", "only_target", "failed", "rows", "findings")
"""Parts of an answer that give way, first to last, where it does not fit; the ratio and its words always stay."""
_KEPT_ROWS = 12


def freeze(answers: Sequence[Mapping[str, Any]], most_bytes: int = MAX_FROZEN_BYTES) -> list[Answer]:
    """The answers in a size that the journal takes. `frozen_rows_left_out`: part -> rows that were not kept."""
    frozen = [dict(answer) for answer in answers]
    for keep in (_KEPT_ROWS, 3, 1, 0):
        for part in _LONG:
            if _size(frozen) <= most_bytes:
                return frozen
            for answer in frozen:
                rows = answer.get(part)
                if isinstance(rows, list) and len(rows) > keep:
                    out = dict(answer.get("frozen_rows_left_out", {}))
                    answer["frozen_rows_left_out"] = {**out, part: out.get(part, 0) + len(rows) - keep}
                    answer[part] = rows[:keep]
    if _size(frozen) > most_bytes:
        raise UserError(f"an answer of {len(frozen)} parts that is too long to pin", f"at most {most_bytes} bytes",
                        "pin a view of fewer targets")
    return frozen


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _runs(answer: Mapping[str, Any], side: str) -> list[str]:
    """Runs whose cells the answer speaks about."""
    if answer.get("rows"):
        return [str(row[side]["run_id"]) for row in answer["rows"]]
    found = answer[side]
    return [str(found["run_id"])] if found.get("run_id") else [str(run) for run in found.get("runs", ())]


def _devices(answer: Mapping[str, Any]) -> list[str]:
    return [str(answer[side]["gpu"]) for side in ("baseline", "target") if answer[side].get("gpu")]


def _workload(answers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    first = answers[0] if answers else {}
    work = first.get("workload") or next(iter(first.get("rows") or ()), None)
    return work if isinstance(work, Mapping) else None


# --- the agenda ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A pin as the agenda shows it. `decided_by`: runs that answer its command; `gone`: its runs that are not there
    any more; `words`, in one sentence, what that is."""

    pin: Pin
    decided_by: tuple[Mapping[str, str], ...]
    gone: tuple[str, ...]

    @property
    def mark(self) -> str:
        """`decided by run X on the T4`, or ""."""
        return answered_words(self.decided_by)

    @property
    def gone_words(self) -> str:
        if not self.gone:
            return ""
        what = f"Run {self.gone[0]} of this pin was" if len(self.gone) == 1 else f"{len(self.gone)} runs of it were"
        return f"{what} deleted or held back since; the answer below is the one of {self.pin.time[:10]}."

    @property
    def headline(self) -> str:
        return headline_of(self.pin.view.answers, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """What the sides are called, where the view gave them names."""
        return tuple(str(name) for name in self.pin.view.question.get("names") or ())

    @property
    def verdict(self) -> str | None:
        found = self.pin.view.answers[0].get("verdict") if self.pin.view.answers else None
        return str(found) if found else None


def agenda(store: Store, runs: RunsFolder) -> list[Item]:
    """All pins: open ones first, of those the ones whose measurement has come in; newest first."""
    counted = set(queries.runs(store)["run_id"])
    items = [
        Item(pin, tuple(deciding_runs(store, pin.words.wanted)),
             tuple(run for run in pin.view.runs if run not in counted))
        for pin in pins_of(runs)
    ]
    order = {"open": 0, "decided": 1, "done": 2}
    return sorted(items, key=lambda item: (order[item.pin.words.status], not item.decided_by))


def search(items: Sequence[Item], text: str, status: str = "all") -> list[Item]:
    """Items of this status that hold every word of `text` somewhere: in their words, headline, devices or runs."""
    words = text.casefold().split()
    return [item for item in items if status in ("all", item.pin.words.status)
            and all(word in _haystack(item) for word in words)]


def _haystack(item: Item) -> str:
    pin = item.pin
    parts = [pin.words.shown(), pin.id, pin.actor, pin.view.page, *pin.view.runs, item.mark,
             *(str(answer["headline"]) for answer in pin.view.answers),
             *(gpu for answer in pin.view.answers for gpu in _devices(answer))]
    work = _workload(pin.view.answers)
    return " ".join([*parts, str(work.get("words") or work.get("workload") or "") if work else ""]).casefold()


def agenda_words(items: Sequence[Item]) -> str:
    """The sentence over the agenda."""
    if not items:
        return "Nothing is pinned yet."
    open_items = [item for item in items if item.pin.words.status == "open"]
    if not open_items:
        return f"No open item; {len(items)} decided or done."
    said = f"{len(open_items)} open item{'s' if len(open_items) > 1 else ''}"
    answered = sum(bool(item.decided_by) for item in open_items)
    return f"{said}; {'one has' if answered == 1 else f'{answered} have'} the measurement that decides." if answered \
        else f"{said}."


# --- then and now ----------------------------------------------------------------------------------------------------


def then_and_now(store: Store, pin: Pin, asked: Ask | None = None) -> dict[str, Any]:
    """The frozen answer beside the present one: `then`, `now` (None with `why_no_answer`), `rows` of figures
    (what, then, now, changed), `headline`. `asked`: how the question is asked (default: `ask` of this store)."""
    now: list[Answer] | None = None
    why = None
    try:
        question = question_of(pin.view.question)
        now = asked(question) if asked else ask(store, question)
    except UserError as error:
        why = str(error)
    then = list(pin.view.answers)
    before = figures(then, pin.view.question.get("names") or ())
    after = dict(figures(now, pin.view.question.get("names") or ())) if now else {}
    rows = [{"what": what, "then": value, "now": after.get(what, units.MISSING), "changed": after.get(what) != value}
            for what, value in before]
    rows += [{"what": what, "then": units.MISSING, "now": value, "changed": True} for what, value in after.items()
             if what not in dict(before)]
    return {"then": then, "now": now, "why_no_answer": why, "rows": rows, "headline": _changed_words(rows, now, why)}


def _changed_words(rows: Sequence[Mapping[str, Any]], now: list[Answer] | None, why: str | None) -> str:
    if now is None:
        return f"The question has no answer any more: {why}"
    changed = [row for row in rows if row["changed"]]
    if not changed:
        return "The answer is the same as when it was pinned."
    first = changed[0]
    rest = f" {len(changed) - 1} more figures changed." if len(changed) > 2 else ""
    return f"Since it was pinned: {first['what']} {first['then']}, now {first['now']}.{rest}"


def figures(answers: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The figures of an answer that a meeting talks about, as (what, value); units are in the values."""
    if answers and "measured_ratio" in answers[0]:
        return _explain_figures(answers[0])
    found: list[tuple[str, str]] = []
    for place, answer in enumerate(answers):
        name = names[place + 1] if len(names) > place + 1 else str(answer["target"]["label"])
        row = next(iter(answer.get("rows") or ()), None)
        if row is None:
            found.append((name, "not comparable"))
            continue
        value, low, high = (row["speedup"][part] for part in ("value", "low", "high"))
        found += [(f"speedup, {name}", units.ratio(value)), (f"interval, {name}", units.ratio_interval(low, high)),
                  (f"verdict, {name}", sentences.VERDICT_WORDS[row["verdict"]])]
    return found


def _explain_figures(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    ratio, expected = answer["measured_ratio"], answer["expected"]
    low, high = expected.get("low"), expected.get("high")
    theory = [units.ratio(end) for end in (low, high) if end is not None]
    first = next(iter(answer["findings"]), None)
    n = answer["n"]
    return [
        ("measured ratio", units.ratio(ratio["value"])),
        ("95 % interval", units.ratio_interval(ratio["low"], ratio["high"])),
        ("verdict", sentences.VERDICT_WORDS[answer["verdict"]]),
        ("theory", " to ".join(dict.fromkeys(theory)) or units.MISSING),
        ("baseline time", units.time_ms(answer["baseline"].get("median_ms"))),
        ("target time", units.time_ms(answer["target"].get("median_ms"))),
        ("not explained", units.ratio(answer["residual"])),
        ("first cause", f"{first['cause']} ({first['evidence']})" if first else units.MISSING),
        ("n and boards", f"{n['baseline']} and {n['target']}, {n['boards']} boards"),
        ("baseline run", str(answer["baseline"].get("run_id") or units.MISSING)),
        ("target run", str(answer["target"].get("run_id") or units.MISSING)),
    ]
