"""Every repetition of one cell with what the board said meanwhile: clock, power, temperature, and the flags."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from core import units
from core.analysis.flags import flagged_samples
from core.answers.json_values import json_value, records
from core.answers.one_side import about, cell_of
from core.answers.selection import Filters

if TYPE_CHECKING:
    from core.store import Store

COLUMNS = ("wall_ms", "sm_clock_mhz", "power_w", "temperature_c")


def samples(store: Store, selection: str, filters: Filters | None = None) -> dict[str, Any]:
    """`samples`: a table with process, i, wall_ms, sm_clock_mhz, power_w, temperature_c, flag (None: nothing to
    say), in the order of measuring; `median_ms` and `median_without_ms` (of the samples without a flag), `n`,
    `flagged`, `headline`, and what cell it is.

    Raises `UserError` as `core.answers.one_side.cell_of`.
    """
    from core.store import queries

    cell = cell_of(store, selection, filters)
    header = json_value(records(queries.run_header(cell.side.store, cell.run_id)))[0]
    found = queries.samples(cell.side.store, cell.run_id, cell.seqs)
    processes = {int(line["seq"]): int(line["process"]) for line in cell.lines}
    read = {name: pd.to_numeric(found[name], errors="coerce").astype(float).to_numpy()
            for name in ("throttle_bits", "sm_clock_mhz", "power_w", "power_limit_w", "utilization_percent")}
    limits = pd.Series(read["power_limit_w"]).fillna(header["power_limit_w"]).to_numpy(dtype=float)
    flags = flagged_samples(
        found["wall_ms"], header["max_sm_clock_mhz"], read["throttle_bits"], read["sm_clock_mhz"], read["power_w"],
        limits, read["utilization_percent"],
    )
    table = pd.DataFrame({
        "process": [processes[int(seq)] for seq in found["seq"]], "i": found["i"].astype(int),
        **{name: pd.to_numeric(found[name], errors="coerce").astype(float) for name in COLUMNS},
        "flag": list(flags.flags),
    })
    middle = units.time_ms(flags.median)
    return {
        **about(cell), "samples": table, "n": flags.n, "flagged": flags.n_flagged, "median_ms": flags.median,
        "median_without_ms": flags.median_without, "processes": len(cell.lines),
        "max_sm_clock_mhz": header["max_sm_clock_mhz"],
        "telemetry": bool(table[list(COLUMNS[1:])].notna().any(axis=None)),
        "headline": flags.told or f"None of {flags.n} samples is flagged; the median is {middle}.",
    }
