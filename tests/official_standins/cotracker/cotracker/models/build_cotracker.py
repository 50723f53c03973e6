from cotracker.models.core.cotracker.cotracker import CoTracker2
from cotracker.models.core.cotracker.cotracker3_offline import CoTrackerThree


def build_cotracker(checkpoint=None, offline=True, window_len=16, v2=False):
    assert checkpoint is None
    return CoTracker2(window_len) if v2 else CoTrackerThree(window_len)
