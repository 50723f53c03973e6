"""Your own model in Gapscope: python -m core run --entry examples/own_model.py:build --precision fp32"""
import torch
from torch import nn


def build():
    encoder = nn.Sequential(nn.Conv2d(3, 64, 7, stride=4, padding=3), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1))
    model = nn.Sequential(encoder, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 2)).eval()
    frames = torch.rand(8, 3, 128, 128)  # what model(...) is called with
    return model, frames, {"encoder": "0", "head": "3"}  # stages are optional: name, submodule
