"""The host of a pass: the time between two kernel launches that explains why a pass took longer than its kernels."""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MANY_LAUNCHES = 16


def host_launches(launches: Floats, calls: Floats) -> Floats:
    """The launches of each operation that cost the host its usual interval.

    A library that launches many kernels in one call does so without what an operator costs (cuDNN's FFT convolution:
    2,119 launches in 15.1 ms on an H200 whose host takes 14 us an operator): such a call counts once.
    """
    return np.where(launches > _MANY_LAUNCHES * np.fmax(calls, 1.0), np.fmax(calls, 1.0), launches)


def host_interval_ms(device_ms: Floats, launches: Floats, wall_ms: float) -> float | None:
    """The time between two launches that makes sum(max(interval x launches, device)) equal to the wall time.

    `device_ms`, `launches`: shape (operations,), of one pass. None where the wall time is not above the sum of device
    times: the host then never shows.
    """
    if wall_ms <= device_ms.sum() or not launches.sum():
        return None
    low, high = 0.0, wall_ms / launches.sum() + 1e-9
    for _ in range(60):
        middle = (low + high) / 2
        if np.maximum(middle * launches, device_ms).sum() < wall_ms:
            low = middle
        else:
            high = middle
    return high
