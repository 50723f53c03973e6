"""Point trackers: `registry` (standard library only) names them, the other modules hold models (torch)."""
