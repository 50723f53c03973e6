"""Gapscope: why is this GPU N times slower at point tracking."""
