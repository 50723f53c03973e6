"""Official trackers: their own code from the user's copy of the repository, or from an installed package.

Constraints, defaults and numbers of parameters are those of the code in `Checkout.repository`, as read and run at the
commits 3385a23 (LocoTrack), 82e02e8 (CoTracker), c2cbab8 (tapnet) and c1ed462 (AllTracker), and of torchvision 0.28.
"""
from types import MappingProxyType

from core.trackers.info import OFFICIAL, Checkout, TrackerInfo, VariantInfo

LOCOTRACK_CHECKOUT = Checkout(
    "locotrack", "cvlab-kaist/locotrack", "locotrack_pytorch", ("models",),
    ("locotrack_pytorch/models/locotrack_model.py", "locotrack_pytorch/models/cmdtop.py"),
)
COTRACKER_CHECKOUT = Checkout(
    "cotracker", "facebookresearch/co-tracker", "", ("cotracker",),
    ("cotracker/predictor.py", "cotracker/models/core/cotracker/cotracker3_offline.py"), torch_hub=True,
)
TAPNET_CHECKOUT = Checkout(
    "tapnet", "google-deepmind/tapnet", "", ("tapnet",),
    ("tapnet/torch/tapir_model.py", "tapnet/tapnext/tapnext_torch.py"),
)
ALLTRACKER_CHECKOUT = Checkout(
    "alltracker", "aharley/alltracker", "", ("nets", "utils"), ("nets/alltracker.py", "nets/blocks.py"),
)

_RESIZED = "Every clip is resized to 384x512 inside the timed call, and 36 support points are added."

LOCOTRACK = TrackerInfo(
    name="locotrack",
    title="LocoTrack",
    paper="Cho et al., Local All-Pair Correspondence for Point Tracking, ECCV 2024",
    licence="Apache-2.0",
    variants=MappingProxyType({
        "small": VariantInfo("small", "small", 8_236_133),
        "base": VariantInfo("base", "base", 11_519_717),
    }),
    default_variant="base",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "cost_volume", "correlation", "correlation_encoder", "transformer"),
    module="core.trackers.official.locotrack",
    iterations=4,
    query_chunk=64,
    window=None,
    size_multiple=8,
    min_side=32,
    min_frames=2,
    plan=None,
    checkout=LOCOTRACK_CHECKOUT,
    packages=("einops",),
    notes=("A clip smaller than 256x256 is enlarged to it inside the timed call.",),
)

COTRACKER3 = TrackerInfo(
    name="cotracker3",
    title="CoTracker3",
    paper="Karaev et al., CoTracker3: Simpler and Better Point Tracking by Pseudo-Labelling Real Videos, 2024",
    licence="CC-BY-NC-4.0",
    variants=MappingProxyType({
        "offline": VariantInfo("offline", "offline, the model itself", 25_385_700),
        "online": VariantInfo("online", "online, the model itself, all windows of a clip in one call", 25_385_700,
                              {"window": 16, "min_frames": 16}),
        "offline-predictor": VariantInfo("offline-predictor", "offline, through CoTrackerPredictor", 25_385_700,
                                         {"iterations": 6, "size_multiple": 1, "min_side": 2, "notes": (_RESIZED,)}),
        "online-predictor": VariantInfo(
            "online-predictor", "online, through CoTrackerOnlinePredictor, a call per 8 frames", 25_385_700,
            {"iterations": 6, "size_multiple": 1, "min_side": 2, "window": 16, "min_frames": 16,
             "notes": ("Every window is resized to 384x512 inside the timed call.",)},
        ),
    }),
    default_variant="offline",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "correlation", "correlation_encoder", "transformer"),
    module="core.trackers.official.cotracker3",
    iterations=4,
    query_chunk=None,
    window=None,
    size_multiple=4,
    min_side=32,
    min_frames=2,
    plan=None,
    checkout=COTRACKER_CHECKOUT,
)

COTRACKER2 = TrackerInfo(
    name="cotracker2",
    title="CoTracker2",
    paper="Karaev et al., CoTracker: It is Better to Track Together, ECCV 2024",
    licence="CC-BY-NC-4.0",
    variants=MappingProxyType({
        "inner": VariantInfo("inner", "the model itself", 45_458_787),
        "predictor": VariantInfo("predictor", "through CoTrackerPredictor", 45_458_787,
                                 {"iterations": 6, "size_multiple": 1, "min_side": 2, "notes": (_RESIZED,)}),
    }),
    default_variant="inner",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "correlation", "transformer"),
    module="core.trackers.official.cotracker2",
    iterations=4,
    query_chunk=None,
    window=8,
    size_multiple=4,
    min_side=32,
    min_frames=8,
    plan=None,
    checkout=COTRACKER_CHECKOUT,
)

TAPIR = TrackerInfo(
    name="tapir",
    title="TAPIR",
    paper="Doersch et al., TAPIR: Tracking Any Point with Per-frame Initialization and Temporal Refinement, ICCV 2023; "
          "BootsTAP: Bootstrapped Training for Tracking-Any-Point, 2024",
    licence="Apache-2.0",
    variants=MappingProxyType({
        "tapir": VariantInfo("tapir", "TAPIR", 31_072_327),
        "bootstapir": VariantInfo("bootstapir", "BootsTAPIR", 54_699_335),
    }),
    default_variant="tapir",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "cost_volume", "correlation", "mixer"),
    module="core.trackers.official.tapir",
    iterations=4,
    query_chunk=64,
    window=None,
    size_multiple=8,
    min_side=32,
    min_frames=2,
    plan=None,
    checkout=TAPNET_CHECKOUT,
    packages=("tree", "einshape"),
    notes=(
        "A clip smaller than 256x256 is enlarged to it inside the timed call; a larger one is tracked at 256x256 and "
        "then at each size up to its own, with all iterations at each.",
    ),
)

TAPNEXT = TrackerInfo(
    name="tapnext",
    title="TAPNext",
    paper="Zholus et al., TAPNext: Tracking Any Point (TAP) as Next Token Prediction, 2025",
    licence="Apache-2.0",
    variants=MappingProxyType({
        "clip": VariantInfo("clip", "the whole clip in one call", None),
        "online": VariantInfo("online", "frame by frame with a state", None),
    }),
    default_variant="clip",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "recurrence", "transformer", "heads"),
    module="core.trackers.official.tapnext",
    iterations=None,
    query_chunk=None,
    window=None,
    size_multiple=8,
    min_side=32,
    min_frames=2,
    plan=None,
    checkout=TAPNET_CHECKOUT,
    packages=("einops", "torchvision"),
    side_is_fixed=True,
    notes=(
        "Weights belong to one size, 256x256 for the published ones; other sizes run with random weights only.",
        "Positions are read from 256 bins per axis, so nothing is ever found beyond pixel 256.",
    ),
)

ALLTRACKER = TrackerInfo(
    name="alltracker",
    title="AllTracker",
    paper="Harley et al., AllTracker: Efficient Dense Point Tracking at High Resolution, ICCV 2025",
    licence="MIT",
    variants=MappingProxyType({
        "base": VariantInfo("base", "base", 16_476_962),
        "tiny": VariantInfo("tiny", "tiny", 6_294_050),
    }),
    default_variant="base",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "correlation", "update", "upsample"),
    module="core.trackers.official.alltracker",
    iterations=4,
    query_chunk=None,
    window=16,
    size_multiple=8,
    min_side=72,
    min_frames=16,
    plan=None,
    checkout=ALLTRACKER_CHECKOUT,
    packages=("einops", "torchvision"),
    dense=True,
    notes=(
        "Follows every pixel of the first frame; a query in a later frame follows its pixel of the first.",
        "Heights and widths are padded to multiples of 64, at least 128, inside the timed call.",
        "Results go to host memory after each window inside the timed call, as its own code does it.",
    ),
)

RAFT = TrackerInfo(
    name="raft",
    title="RAFT (torchvision)",
    paper="Teed and Deng, RAFT: Recurrent All-Pairs Field Transforms for Optical Flow, ECCV 2020",
    licence="BSD-3-Clause",
    variants=MappingProxyType({
        "large": VariantInfo("large", "large", 5_257_536),
        "small": VariantInfo("small", "small", 990_162),
    }),
    default_variant="large",
    revision="unknown",
    implementation=OFFICIAL,
    weights="random",
    stages=("encoder", "correlation", "update", "upsample"),
    module="core.trackers.official.raft",
    iterations=12,
    query_chunk=None,
    window=None,
    size_multiple=8,
    min_side=128,
    min_frames=2,
    plan=None,
    packages=("torchvision",),
    dense=True,
    notes=("Optical flow from each frame to the next, pair after pair; points follow the chained flows.",),
)

ENTRIES = (LOCOTRACK, COTRACKER3, COTRACKER2, TAPIR, TAPNEXT, ALLTRACKER, RAFT)
