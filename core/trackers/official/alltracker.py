"""AllTracker (Harley et al., ICCV 2025) from a checkout of aharley/alltracker: dense tracks of the first frame.

Frames go in as (B, T, 3, H, W) in 0..255. Its sliding call moves frames with `.cuda()` and gives flows of all pixels
in host memory. Frames that already lie on the GPU are not moved. On a CPU `Tensor.cuda` is made to leave a tensor
where it is for the length of the call; nothing else of the code is touched.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.trackers import registry
from core.trackers.official import flow
from core.trackers.official.adapter import OfficialTracker, above_threshold, to_bytes_range
from core.trackers.official.hooks import Hooked
from core.trackers.official.loading import finished, modules_of, own, own_random_numbers
from core.trackers.tracker import Predictions

# init_weights would download those of a classifier.
ARGUMENTS = {"base": {"init_weights": False}, "tiny": {"use_basicencoder": True, "no_split": True}}
VISIBLE_ABOVE = 0.6
"""The threshold on visibility times confidence in the repository's evaluation."""


class AllTracker(OfficialTracker):
    def __init__(self, model: Any, module: Any, iterations: int) -> None:
        encoders = (model.fnet,) if model.use_basicencoder else (model.cnn, model.dot_conv)
        super().__init__(model, (
            *(Hooked("encoder", encoder) for encoder in encoders),
            Hooked("correlation", module.CorrBlock, "__init__"),  # one for each window
            Hooked("correlation", module.CorrBlock, "__call__"),
            *(Hooked("update", part) for part in (model.update_block, model.flow_head, model.visconf_head)),
            Hooked("upsample", model.upsample_weight),
            Hooked("upsample", model, "upsample_data"),
        ))
        self.iterations = iterations

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"images": to_bytes_range(video), "queries": queries}

    def run(self, **arguments: Any) -> Any:
        """(flows (B, T, 2, H, W) from the first frame, visibility and confidence alike, queries as they came)."""
        images = arguments["images"]
        with contextlib.nullcontext() if images.is_cuda else _cuda_stays_here():
            flows, seen, *_ = self.model.forward_sliding(images, iters=self.iterations)
        return flows, seen, arguments["queries"]

    def predictions(self, output: Any) -> Predictions:
        """Bilinear at each query's place in the first frame, whatever frame it was asked for in."""
        flows, seen, queries = output
        places = queries[..., 1:].to(flows.device)
        moved = torch.stack([flow.sample(flows[:, t], places) for t in range(flows.shape[1])], dim=2)
        visible = torch.stack([flow.sample(seen[:, t], places) for t in range(seen.shape[1])], dim=2)
        return Predictions(places[:, :, None] + moved, above_threshold(visible.prod(dim=-1), VISIBLE_ABOVE))


def build(
    variant: str = "base", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> AllTracker:
    """`base` or `tiny`; see core.trackers.official. One model serves clips of any length and size."""
    info, chosen = registry.resolve(f"alltracker:{variant}")
    (module,) = modules_of("alltracker", checkout, ("nets.alltracker",))
    with own_random_numbers(seed):
        model = module.Net(info.window, **ARGUMENTS[chosen.name])
    return AllTracker(finished(model, weights), module, own(iterations, info, "iterations"))


@contextlib.contextmanager
def _cuda_stays_here() -> Iterator[None]:
    original = torch.Tensor.cuda
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        torch.Tensor.cuda = original  # type: ignore[method-assign]
