"""The built-in tracker with local 4D correlation."""
from types import MappingProxyType

from core.trackers import local4d_plan, local4d_shape
from core.trackers.info import BUILTIN, TrackerInfo, VariantInfo

ENTRY = TrackerInfo(
    name="local4d",
    title="Local 4D correlation (built in)",
    paper="architecture of LocoTrack: Cho et al., Local All-Pair Correspondence for Point Tracking, ECCV 2024",
    licence="Apache-2.0",
    variants=MappingProxyType({
        "small": VariantInfo("small", "small", 8_067_293),
        "base": VariantInfo("base", "base", 11_301_469),
    }),
    default_variant="base",
    revision="1",
    implementation=BUILTIN,
    weights="random",
    stages=("encoder", "transformer", "correlation", "cost_volume", "correlation_encoder"),
    module="core.trackers.local4d",
    iterations=local4d_shape.DEFAULT_ITERATIONS,
    query_chunk=local4d_shape.DEFAULT_QUERY_CHUNK,
    window=None,
    size_multiple=local4d_shape.LEVEL_STRIDES[-1],
    min_side=32,
    min_frames=2,
    plan=local4d_plan.estimate,
)
