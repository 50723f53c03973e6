"""What a board did over time, out of readings of its clock, power and load: idle, starved, capped, busy."""
from __future__ import annotations

import pandas as pd

LIGHT_LOAD_PERCENT = 60.0
"""Below this share of time with a kernel running the host, or the input, is what the board waits for."""

LOW_CLOCK_SHARE = 0.6
"""A clock below this share of the highest one is the driver's, for a board that has little to do."""

CAPPED_POWER_SHARE, CAPPED_CLOCK_SHARE = 0.8, 0.9
"""Power that near to the limit (nvidia-smi averages it over a second) with a clock below this share: held down."""

STATES = {
    "idle": "nothing ran", "starved": "little ran, and the clock fell: the board waited for its host",
    "capped": "the power limit held the clock down", "light": "little ran, at a high clock",
    "busy": "work ran most of the time", "unknown": "load or clock is not in the log",
}
"""State -> what it means."""


def states(log: pd.DataFrame, max_clock_mhz: float | None, power_limit_w: float | None) -> pd.Series:
    """One of `STATES` per reading. `log` columns: utilization_percent, sm_clock_mhz, power_w, each may be missing.

    Without a limit nothing is called capped, without a highest clock nothing starved.
    """
    def column(name: str) -> pd.Series:
        return log[name].astype(float) if name in log else pd.Series(float("nan"), index=log.index)

    load, clock, power = column("utilization_percent"), column("sm_clock_mhz"), column("power_w")
    share = clock / max_clock_mhz if max_clock_mhz else clock * float("nan")
    limit = column("power_limit_w").fillna(power_limit_w if power_limit_w is not None else float("nan"))
    found = pd.Series("unknown", index=log.index)
    found[load >= LIGHT_LOAD_PERCENT] = "busy"
    found[load < LIGHT_LOAD_PERCENT] = "light"
    found[(load < LIGHT_LOAD_PERCENT) & (share < LOW_CLOCK_SHARE)] = "starved"
    found[load == 0] = "idle"
    found[(power >= CAPPED_POWER_SHARE * limit) & (share < CAPPED_CLOCK_SHARE)] = "capped"
    return found


def phases(log: pd.DataFrame, max_clock_mhz: float | None, power_limit_w: float | None) -> pd.DataFrame:
    """Readings by state, the most frequent first: state, means, readings, clock_mhz, power_w, load_percent.

    Medians; of the clock, which moves in steps, the step that at least a third of the readings share, if there is one.
    Readings are counted, not seconds: the time between two of them is unknown where a log was cut.
    """
    if log.empty:
        return pd.DataFrame(columns=["state", "means", "readings", "clock_mhz", "power_w", "load_percent"])
    named = log.assign(state=states(log, max_clock_mhz, power_limit_w))
    rows = []
    for state, part in named.groupby("state", sort=False):
        rows.append({
            "state": state, "means": STATES[str(state)], "readings": len(part),
            "clock_mhz": _usual(part["sm_clock_mhz"]) if "sm_clock_mhz" in part else None,
            **{name: float(part[column].median()) if column in part and part[column].notna().any() else None
               for name, column in (("power_w", "power_w"), ("load_percent", "utilization_percent"))},
        })
    made = pd.DataFrame(rows)
    return made.sort_values("readings", ascending=False, kind="stable").reset_index(drop=True)


def _usual(values: pd.Series) -> float | None:
    known = values.dropna()
    if known.empty:
        return None
    counts = known.value_counts()
    return float(counts.index[0]) if 3 * counts.iloc[0] >= len(known) and counts.iloc[0] > 1 else float(known.median())
