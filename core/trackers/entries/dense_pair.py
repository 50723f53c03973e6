"""The built-in dense tracker."""
from types import MappingProxyType

from core.trackers import dense_pair_plan, dense_pair_shape
from core.trackers.info import BUILTIN, TrackerInfo, VariantInfo

ENTRY = TrackerInfo(
    name="dense_pair",
    title="Dense flow from all pairs of cells, chained (built in)",
    paper="architecture of RAFT: Teed and Deng, Recurrent All-Pairs Field Transforms for Optical Flow, ECCV 2020",
    licence="Apache-2.0",
    variants=MappingProxyType({
        "small": VariantInfo("small", "small", 989_394),
        "base": VariantInfo("base", "base", 5_253_216),
    }),
    default_variant="base",
    revision="1",
    implementation=BUILTIN,
    weights="random",
    stages=("encoder", "correlation", "lookup", "update", "upsample", "chain"),
    module="core.trackers.dense_pair",
    iterations=dense_pair_shape.DEFAULT_ITERATIONS,
    query_chunk=None,
    window=None,
    size_multiple=dense_pair_shape.STRIDE,
    min_side=dense_pair_shape.MIN_SIDE,
    min_frames=2,
    plan=dense_pair_plan.estimate,
    dense=True,
    notes=("Volumes grow with the fourth power of the resolution, times the pairs that are worked on at once (8).",),
)
