"""What GPUs are: the spec catalogue and public measured ceilings as data, look-up by name, peaks by precision.

Standard library only, Python 3.10: the app, the runner and `collect.pyz` all carry it.
How far each figure can be trusted is in the rows themselves (`source`, `verification`, `derived_fields`).
"""
from core.gpus.catalogue import (
    Ceiling,
    Gpu,
    catalogue,
    follows_catalogue,
    measured_ceilings,
    set_added_cards,
    shipped_catalogue,
    value_source,
)
from core.gpus.lookup import Match, by_human_name, by_nvml_name
from core.gpus.peaks import PRECISIONS, Peak, peak_tflops, unknown_card

__all__ = [
    "PRECISIONS",
    "Ceiling",
    "Gpu",
    "Match",
    "Peak",
    "by_human_name",
    "by_nvml_name",
    "catalogue",
    "follows_catalogue",
    "measured_ceilings",
    "peak_tflops",
    "set_added_cards",
    "shipped_catalogue",
    "unknown_card",
    "value_source",
]
