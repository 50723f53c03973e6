"""What the first page opens on: the founding pair, for `core.answers.two.explain_two`."""

FOUNDING_PAIR = ("Tesla T4=85s", "NVIDIA A100-SXM4-40GB=0.5s")
"""The two numbers that Gapscope was made for: 47 frames of 256x256, stated as FP32."""
FOUNDING_PRECISION = "fp32"
