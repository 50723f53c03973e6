"""The built-in tracker that follows all points jointly."""
from types import MappingProxyType

from core.trackers import joint4d_plan, joint4d_shape
from core.trackers.info import BUILTIN, TrackerInfo, VariantInfo

ENTRY = TrackerInfo(
    name="joint4d",
    title="Joint tracking with local 4D correlation (built in)",
    paper="architecture of CoTracker3 offline: Karaev et al., CoTracker3, arXiv 2410.11831",
    licence="Apache-2.0",
    variants=MappingProxyType({"base": VariantInfo("base", "base", 25_378_756)}),
    default_variant="base",
    revision="1",
    implementation=BUILTIN,
    weights="random",
    stages=("encoder", "correlation", "transformer", "correlation_encoder"),
    module="core.trackers.joint4d",
    iterations=joint4d_shape.DEFAULT_ITERATIONS,
    query_chunk=None,
    window=None,
    size_multiple=joint4d_shape.STRIDE,
    min_side=joint4d_shape.MIN_SIDE,
    min_frames=2,
    plan=joint4d_plan.estimate,
)
