"""TAPNext (Zholus et al., 2025) from a checkout of google-deepmind/tapnet: `tapnet.tapnext`. No correlation volume.

Videos in -1..1 as (B, T, H, W, 3), queries as (t, y, x), tracks out as (B, T, N, 2) in the order (y, x); the frame's
edge is at 0. The size of the clip is built into the model: position embeddings are learned for one grid.

The repository leaves the parameters of its recurrent blocks as they lie in memory, since it always loads weights.
Random weights therefore fill them here, with the usual scales.
"""
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.trackers.official.adapter import OfficialTracker, at_least_single, to_tyx
from core.trackers.official.hooks import Hooked
from core.trackers.official.loading import finished, modules_of, own_random_numbers
from core.trackers.tracker import Predictions

PUBLISHED_SIDE = 256  # pixels; what the published weights are for
# The decay of the recurrence is exp(-8 gate softplus(p)): between 0.95 and 1 a frame at this value, as trained ones.
DECAY_PARAMETER = -5.0


class TapNext(OfficialTracker):
    """The whole clip in one call."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, (
            Hooked("encoder", model.lin_proj),
            *(Hooked("recurrence", block.ssm_block) for block in model.blocks),
            *(Hooked("transformer", block.vit_block) for block in model.blocks),
            Hooked("heads", model, "prediction_heads"),
        ))

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"video": video, "query_points": to_tyx(queries)}

    def predictions(self, output: Any) -> Predictions:
        """output: tracks, then more, with the visibility logits (B, T, N, 1) third."""
        tracks, visible = at_least_single(output[0]), at_least_single(output[2])
        return Predictions(tracks.flip(-1).transpose(1, 2), visible[..., 0].transpose(1, 2))


class TapNextOnline(TapNext):
    """Frame by frame with the state of the frames before, as the repository's demo does it."""

    def run(self, **arguments: Any) -> Any:
        video = arguments["video"]
        step = self.model(video=video[:, :1], query_points=arguments["query_points"])
        steps = [step[:3]]
        for frame in range(1, video.shape[1]):
            step = self.model(video=video[:, frame : frame + 1], state=step[3])
            steps.append(step[:3])
        return tuple(torch.cat(parts, dim=1) for parts in zip(*steps, strict=True))


def build(
    variant: str = "clip", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> TapNext:
    """`clip` or `online`; see core.trackers.official. For clips of height x width, 256x256 where not given.

    weights may also be the repository's `.npz` (JAX).
    """
    module, utilities = modules_of(
        "tapnext", checkout, ("tapnet.tapnext.tapnext_torch", "tapnet.tapnext.tapnext_torch_utils")
    )
    size = (height or PUBLISHED_SIDE, width or PUBLISHED_SIDE)
    with own_random_numbers(seed):
        model = module.TAPNext(image_size=size)
        _fill_recurrent_blocks(model)
    adapter = TapNextOnline if variant == "online" else TapNext
    if weights is not None and Path(weights).suffix == ".npz":
        return adapter(finished(_from_jax(model, utilities, Path(weights).expanduser()), None))
    try:
        return adapter(finished(model, weights))
    except UserError as error:
        if size == (PUBLISHED_SIDE, PUBLISHED_SIDE):
            raise
        raise UserError(error.found, "the size that they were made for, 256x256 for the published ones",
                        "use --resolution 256 or random weights") from None


def _fill_recurrent_blocks(model: nn.Module) -> None:
    """Parameters that the repository's own layers leave uninitialised; torch's layers have filled theirs."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kind = name.rpartition(".")[2]
            if ".ssm_block." not in name:
                continue
            if kind == "w":  # (..., inputs, outputs)
                parameter.normal_(0, 1 / math.sqrt(parameter.shape[-2]))
            elif kind in ("b", "scale"):  # norms multiply by 1 + scale
                parameter.zero_()
            elif kind == "a_param":
                parameter.fill_(DECAY_PARAMETER)


def _from_jax(model: nn.Module, utilities: Any, path: Path) -> nn.Module:
    """Weights of the JAX version, by the repository's own conversion (numpy arrays, no pickles)."""
    if not path.is_file():
        raise UserError(f"no weights file {path.name!r}", "`random` or a readable checkpoint file")
    try:
        with torch.no_grad():
            converted: nn.Module = utilities.restore_model_from_jax_checkpoint(model, path)
    except KeyError as error:
        raise UserError(f"the weights in {path.name} do not fit this model: {error.args[0]} is not in it",
                        "a TAPNext checkpoint", "choose another file or `random`") from None
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(f"the weights in {path.name} do not fit this model ({error})",
                        "a TAPNext checkpoint", "choose another file or `random`") from None
    return converted
