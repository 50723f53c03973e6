"""What a reader of a foreign file is given, asks, and finds."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from core.records import Op
from core.store.importers.text import Table, decode, read_table

COMMON_QUESTIONS = ("gpu", "precision", "unit", "task", "batch", "attach", "zone", "warmup", "decimal", "time", "apart",
                    "device", "window", "cuda", "cudnn")
"""Keys that may be answered for any file, as a saved answer is; where the file says it itself, it is not needed."""


class RefusedError(Exception):
    """The file cannot be used: (found, expected, what to do)."""

    def __init__(self, found: str, expected: str, fix: str = "") -> None:
        super().__init__(found, expected, fix)
        self.found, self.expected, self.fix = found, expected, fix


def with_article(title: str) -> str:
    """`an asv result`, `a table`."""
    return f"{'an' if title[:1] in 'aeio' or title.startswith(('nv', 'MLPerf')) else 'a'} {title}"


@dataclass(frozen=True)
class Question:
    """Something that the file does not say. `default` None: it must be answered before anything comes in.

    `free`: any text may be given, not only one of `choices`. `many`: several of them, with `;` between.
    """

    key: str
    text: str
    choices: tuple[str, ...] = ()
    default: str | None = None
    free: bool = False
    many: bool = False


@dataclass(frozen=True)
class Problem:
    """A part of the file that was left out. `line` 0: no line of its own."""

    line: int
    field: str
    found: str
    expected: str


@dataclass(frozen=True)
class Given:
    """One file, unpacked."""

    name: str
    data: bytes

    @cached_property
    def text(self) -> str:
        """Raises `RefusedError` when the bytes are no text."""
        return decode(self.data)

    @property
    def json(self) -> Any:
        """The JSON value, None when it is none. Bare NaN is taken as a missing number."""
        return self._parsed[0]

    @property
    def json_trouble(self) -> str | None:
        """Why it is no JSON."""
        return self._parsed[1]

    @property
    def key_given_twice(self) -> str | None:
        """A key that an object of the JSON value has twice: readers disagree on which one counts."""
        return self._parsed[2]

    @cached_property
    def _parsed(self) -> tuple[Any, str | None, str | None]:
        import json

        twice: list[str] = []

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            made = dict(pairs)
            if len(made) != len(pairs) and not twice:
                names = [name for name, _ in pairs]
                twice.append(next(name for name in names if names.count(name) > 1)[:60])
            return made

        try:
            return json.loads(self.text, object_pairs_hook=unique), None, twice[0] if twice else None
        except json.JSONDecodeError as error:
            return None, f"{error.msg} in line {error.lineno}, column {error.colno}", None
        except RecursionError:
            return None, "nested too deeply", None
        except ValueError as error:  # integers of too many digits
            return None, str(error)[:120], None
        except RefusedError as error:
            return None, error.found, None

    @cached_property
    def table(self) -> Table | None:
        """The lines as a table, None when they are none."""
        return read_table(self.text)

    @property
    def stem(self) -> str:
        """The name without its endings."""
        return self.name.split(".")[0] or self.name


class Interview:
    """The questions of one reading and the answers so far: given ones, those of a companion file, defaults."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self._answers = answers
        self.questions: dict[str, Question] = {}
        self.assumed: dict[str, str] = {}
        self.used: dict[str, str] = {}

    def ask(
        self, key: str, question: str, choices: Sequence[str] = (), default: str | None = None, free: bool = False,
        many: bool = False,
    ) -> str | None:
        """The answer; the default, noted as an assumption, where none was given; None where it must be given.

        Raises `RefusedError` for an answer that is none of the choices.
        """
        answer = self._answers.get(key)
        if answer is None or not answer.strip():
            self.questions[key] = Question(key, question, tuple(choices), default, free, many)
            if default is not None:
                self.assumed[key] = default
            return default
        answer = answer.strip()
        parts = [part.strip() for part in answer.split(";")] if many else [answer]
        if choices and not free and not set(parts) <= set(choices):
            raise RefusedError(f"the answer {key}={answer[:60]}", "one of " + ", ".join(choices[:20]))
        self.used[key] = answer
        return answer

    def number(self, key: str, question: str, default: int) -> int:
        """A whole number from 0."""
        answer = self.ask(key, question, default=str(default), free=True) or ""
        if not (answer.isascii() and answer.isdecimal() and len(answer) < 10):
            raise RefusedError(f"the answer {key}={answer[:60]}", "a whole number")
        return int(answer)

    def said(self, key: str) -> str | None:
        """An answer that was given without being asked for."""
        answer = self._answers.get(key)
        if answer is not None and answer.strip():
            self.used[key] = answer.strip()
            return answer.strip()
        return None

    @property
    def is_open(self) -> bool:
        return any(question.default is None for question in self.questions.values())

    def unknown(self) -> list[str]:
        """Answers to what nobody asked and nobody could."""
        return [key for key in self._answers if key not in self.used and key not in self.questions
                and key not in COMMON_QUESTIONS]


@dataclass(frozen=True)
class Board:
    """The device of a reading. `count`: how many of them worked together."""

    name: str
    is_cpu: bool = False
    count: int = 1
    uuid: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True)
class Task:
    """One work in one setting, as the file states it.

    `times_ms`: what was measured, or one number that the file states; `how` says which.
    """

    name: str
    precision: str
    times_ms: tuple[float, ...] = ()
    how: str = ""
    variant: str | None = None
    execution: str = "eager"
    batch: int = 1
    items_per_run: int = 1
    frames: int | None = None
    height: int | None = None
    width: int | None = None
    points: int | None = None
    warmup_ms: tuple[float, ...] = ()
    first_call_ms: float | None = None
    status: str = "ok"
    reason: str | None = None
    peak_bytes: int | None = None
    energy_j: float | None = None
    kernel_busy_ms: float | None = None
    profiled_wall_ms: float | None = None
    ops: tuple[Op, ...] | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """Readings of one board over time: equally long columns, None where a reading is missing. `at_s`: epoch, UTC."""

    columns: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class ForeignRun:
    """What one device did. `started_at`: ISO, UTC; None: the file does not say."""

    board: Board
    tasks: tuple[Task, ...] = ()
    log: Log | None = None
    started_at: str | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    attach: str | None = None


@dataclass
class Reading:
    """What a file holds. `facts`: what it says about the file that it belongs to (`facts_for`), in place of answers.

    `columns`: of a table; files with the same ones are offered the same answers.
    """

    said: list[str] = field(default_factory=list)
    runs: list[ForeignRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    facts_for: str | None = None
