"""What differs between the surroundings of two runs, and which of it can matter for their numbers.

One table of rules (`RULES`). A rule looks at what both runs recorded and says whether the difference can matter, and
why; where a run does not know, `matters` is None. The size of an effect is never claimed here.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.answers.json_values import json_value, records
from core.errors import UserError
from core.gpus import catalogue

if TYPE_CHECKING:
    from core.store import Store

KERNEL_BOUND = 0.9
"""From this share of kernel time in wall time on, the host has no say: see the repeats in docs/benchmarks.md."""

FULL_CLOCK = 0.9
"""Below this share of its maximum clock a card was held back while timed."""

_AT_RATED_POWER = 0.97

Run = Mapping[str, Any]
"""A run's header (columns of `core.store.queries.run_header`) with `busy_share` and `clock_share`."""

Judged = tuple[bool | None, str]
"""(can it matter, why); None: nobody knows."""


@dataclass(frozen=True)
class Rule:
    """`field`: a recorded fact. `judge` is asked when the two sides differ, or when one of them is unknown."""

    field: str
    judge: Callable[[Run, Run], Judged]


def environment_diff(store: Store, run_a: str, run_b: str, store_b: Store | None = None) -> dict[str, Any]:
    """`rows`: [{field, a, b, matters, why}], what can matter first; `same`: fields that are equal; `headline`.

    Only what differs, or is known of one side alone, is a row. `store_b`: where run_b lies, if elsewhere.
    Raises `UserError` for a run that is not stored.
    """
    a, b = _facts(store, run_a), _facts(store_b or store, run_b)
    rows: list[dict[str, Any]] = []
    same: list[str] = []
    for rule in (*RULES, *_setting_rules(a, b)):
        left, right = a.get(rule.field), b.get(rule.field)
        if left == right and not (rule.field == "arch_list" and (_lacks_code(a) or _lacks_code(b))):
            same += [rule.field] if left is not None else []
            continue
        matters, why = rule.judge(a, b)
        rows.append({"field": rule.field, "a": left, "b": right, "matters": matters, "why": why})
    rows.sort(key=lambda row: {True: 0, None: 1, False: 2}[row["matters"]])
    return json_value({"rows": rows, "same": same, "headline": _headline(rows)})


def _facts(store: Store, run_id: str) -> dict[str, Any]:
    from core.store import queries

    header = json_value(records(queries.run_header(store, run_id)))
    if not header:
        raise UserError(f"no run {run_id[:70]} is stored", "a run id", "python -m core runs lists them")
    facts: dict[str, Any] = dict(header[0])
    facts["settings"] = json.loads(facts["settings"]) if facts.get("settings") else {}
    facts |= json_value(records(queries.run_load(store, run_id)))[0]
    if facts["clock_mhz"] is not None and facts["max_sm_clock_mhz"]:
        facts["clock_share"] = facts["clock_mhz"] / facts["max_sm_clock_mhz"]
    return facts


# --- rules -----------------------------------------------------------------------------------------------------------


def _always(why: str) -> Callable[[Run, Run], Judged]:
    return lambda a, b: (True, why)


def _never(why: str) -> Callable[[Run, Run], Judged]:
    return lambda a, b: (False, why)


def _on_cuda(why: str) -> Callable[[Run, Run], Judged]:
    def judge(a: Run, b: Run) -> Judged:
        if "cpu" in (a["device_type"], b["device_type"]):
            return False, "A run on a CPU uses none."
        return True, why

    return judge


def _torch(a: Run, b: Run) -> Judged:
    if _release(a["torch"]) == _release(b["torch"]):
        return True, "The same release in another build: it may bring other libraries."
    return True, "Kernels, their choice and defaults change between releases."


def _release(version: str | None) -> str:
    return (version or "").split("+")[0]


def _driver(a: Run, b: Run) -> Judged:
    if a["driver"] is None or b["driver"] is None:
        return (None, "One run does not say which driver it had.") if a["device_type"] == b["device_type"] else (
            False, "A run on a CPU uses none.")
    if a["driver"].split(".")[0] == b["driver"].split(".")[0]:
        return False, "Both are of one driver branch; kernels come with torch."
    return True, "Another branch: launch cost, clock control and compiled code may differ."


def _arch_list(a: Run, b: Run) -> Judged:
    lacking = [name for name, run in (("a", a), ("b", b)) if _lacks_code(run)]
    if lacking:
        return True, (f"The torch of {' and '.join(lacking)} has no code for its own card: it runs code compiled at "
                      "the first call, or none that suits the card.")
    if not a["arch_list"] or not b["arch_list"]:
        return False, "Only a run on CUDA has such a list." if "cpu" in (a["device_type"], b["device_type"]) else (
            "One run does not say for which cards its torch was built.")
    return False, "Both builds have code for their own card."


def _lacks_code(run: Run) -> bool:
    """No code of the same major capability and at most the same minor one: such code is what a card can run."""
    capability = str(run["compute_capability"] or "").split(".")
    if len(capability) != 2 or not run["arch_list"]:
        return False
    major, minor = capability
    codes = [name.removeprefix("sm_") for name in run["arch_list"] if name.startswith("sm_")]
    return not any(
        code[:-1] == major and code[-1:].isdecimal() and int(code[-1]) <= int(minor) for code in codes
    )


def _power_limit(a: Run, b: Run) -> Judged:
    if a["device_name"] == b["device_name"] and None not in (a["power_limit_w"], b["power_limit_w"]):
        return True, "The same card with less power clocks lower under load."
    lowered = [name for name, run in (("a", a), ("b", b)) if _below_rated(run)]
    if lowered:
        return True, f"The limit of {' and '.join(lowered)} is below what its card is rated for."
    if None in (a["power_limit_w"], b["power_limit_w"]):
        return (False, "A CPU states no limit.") if "cpu" in (a["device_type"], b["device_type"]) else (
            None, "One run does not say its limit.")
    return False, "Each card has its own rated limit."


def _below_rated(run: Run) -> bool:
    card = catalogue().get(run["gpu_key"] or "")
    return bool(card and card.tdp_w and run["power_limit_w"] and run["power_limit_w"] < _AT_RATED_POWER * card.tdp_w)


def _max_clock(a: Run, b: Run) -> Judged:
    if a["device_name"] == b["device_name"] and None not in (a["max_sm_clock_mhz"], b["max_sm_clock_mhz"]):
        return True, "The same card with another highest clock was set or sold otherwise."
    return False, "Another card; its clock is part of the hardware that is compared."


def _clock_share(a: Run, b: Run) -> Judged:
    shares = {name: run.get("clock_share") for name, run in (("a", a), ("b", b))}
    if None in shares.values():
        return (False, "A CPU records no clock.") if "cpu" in (a["device_type"], b["device_type"]) else (
            None, "One run recorded no clock while it was timed.")
    held = [name for name, share in shares.items() if share is not None and share < FULL_CLOCK]
    if held:
        return True, f"{' and '.join(held)} ran below {FULL_CLOCK:.0%} of its highest clock while timed."
    return False, "Both ran near their highest clock."


def _if_host_bound(what: str) -> Callable[[Run, Run], Judged]:
    def judge(a: Run, b: Run) -> Judged:
        if "cpu" in (a["device_type"], b["device_type"]):
            return True, f"{what} is what a run on a CPU is made of."
        shares = [run.get("busy_share") for run in (a, b)]
        if any(share is not None and share < KERNEL_BOUND for share in shares):
            low = min(share for share in shares if share is not None)
            return True, f"The host has a say: kernels fill only {low:.0%} of the time of a cell."
        if None in shares:
            return None, "No profile says whether the host had a say."
        return False, f"Kernels fill at least {KERNEL_BOUND:.0%} of the time on both sides, so the host has no say."

    return judge


def _os(a: Run, b: Run) -> Judged:
    families = {str(run["os"] or "").split(" ")[0].lower() for run in (a, b)}
    if len(families) > 1 and "windows" in families:
        return True, "On Windows the driver gathers launches, which costs time in small kernels."
    return _if_host_bound("The kernel of the system")(a, b)


def _virtualization(a: Run, b: Run) -> Judged:
    if {"vgpu", "host_vgpu", "host_vsga"} & {a["virtualization"], b["virtualization"]}:
        return True, "A virtual GPU shares its board with others."
    if None in (a["virtualization"], b["virtualization"]):
        return (False, "A CPU states none.") if "cpu" in (a["device_type"], b["device_type"]) else (
            None, "One run does not say.")
    return _if_host_bound("The host")(a, b)


RULES = (
    Rule("method", _always("Different measuring methods never enter one ratio.")),
    Rule("device_name", _always("This is the hardware that is compared.")),
    Rule("uuid_hash", _always("Another board: boards of one type are not quite alike.")),
    Rule("sm_count", _always("Part of the hardware that is compared, or a slice of it.")),
    Rule("memory_bytes", _never("Part of the hardware; it matters only where memory runs out.")),
    Rule("mig", _always("A slice of a card has part of its units and bandwidth.")),
    Rule("virtualization", _virtualization),
    Rule("ecc", _on_cuda("Error correction costs bandwidth on cards with GDDR memory.")),
    Rule("power_limit_w", _power_limit),
    Rule("max_sm_clock_mhz", _max_clock),
    Rule("max_memory_clock_mhz", _max_clock),
    Rule("clock_share", _clock_share),
    Rule("torch", _torch),
    Rule("cuda", _on_cuda("The libraries that come with it choose other kernels.")),
    Rule("cudnn", _on_cuda("Another version chooses other convolution kernels.")),
    Rule("driver", _driver),
    Rule("arch_list", _arch_list),
    Rule("cpu", _if_host_bound("The CPU")),
    Rule("cores", _if_host_bound("The number of cores")),
    Rule("ram_bytes", _never("It matters only where memory runs out.")),
    Rule("os", _os),
    Rule("python", _if_host_bound("The interpreter")),
    Rule("pcie_generation", _never("The clip lies on the device while it is timed.")),
    Rule("pcie_width", _never("The clip lies on the device while it is timed.")),
    Rule("persistence", _never("It makes only the first call of a process faster.")),
)
"""Facts of the header in the order of their weight; the settings that were read back follow, one rule each."""


# --- settings that were read back ------------------------------------------------------------------------------------


def _setting_rules(a: dict[str, Any], b: dict[str, Any]) -> list[Rule]:
    """A rule for every setting of either run, by its path; puts the values beside the other facts."""
    names: dict[str, None] = {}
    for run in (a, b):
        for path, value in _flat("settings", run["settings"]):
            run[path] = value
            names[path] = None
    return [Rule(name, _where_recorded(name, _judge_setting(name))) for name in sorted(names)]


def _where_recorded(name: str, judge: Callable[[Run, Run], Judged]) -> Callable[[Run, Run], Judged]:
    """A setting that one run did not write down says nothing; a variable of the environment that is absent is unset."""
    def asked(a: Run, b: Run) -> Judged:
        if None in (a.get(name), b.get(name)) and ".environment." not in name:
            return None, "One of the runs did not record it."
        return judge(a, b)

    return asked


def _flat(path: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(path, value)]
    return [item for key, inner in value.items() for item in _flat(f"{path}.{key}", inner)]


def _judge_setting(name: str) -> Callable[[Run, Run], Judged]:
    part = name.split(".")[1] if "." in name else name
    if part == "threads":
        return _if_host_bound("The number of threads")
    if part == "precision_api":
        return _never("Only how the settings are made; what they are stands beside it.")
    if part == "untouched":
        return _always("What the precision `default` means differs; the other precisions are set by the harness.")
    if part == "sdp_enabled":
        return _always("Attention may run by another backend.")
    return _always("A setting that torch or a library reads.")


def _headline(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "Nothing that was recorded differs."
    said = [row["field"] for row in rows if row["matters"]]
    unknown = sum(row["matters"] is None for row in rows)
    count = f"{len(rows)} difference{'' if len(rows) == 1 else 's'}"
    tail = f"; of {unknown} nobody can tell" if unknown else ""
    if not said:
        return f"{count}, none of which can matter for these numbers{tail}."
    more = f" and {len(said) - 6} more" if len(said) > 6 else ""
    return f"{count}, {len(said)} of which can matter for these numbers: {', '.join(said[:6])}{more}{tail}."
