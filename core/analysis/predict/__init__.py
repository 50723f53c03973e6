"""Time of operations on a GPU that nobody measured, with a band that says how wrong that usually is."""

from core.analysis.predict.model import predict_ops

__all__ = ["predict_ops"]
