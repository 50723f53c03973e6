import torch
from models import utils
from models.cmdtop import CMDTop
from torch import nn

torch.manual_seed(0)  # official code does such things


class LocoTrack(nn.Module):
    def __init__(self, model_size="base", num_pips_iter=4):
        super().__init__()
        self.num_pips_iter = num_pips_iter
        self.resnet_torch = nn.Conv2d(3, {"small": 2, "base": 3}[model_size], 1)
        self.cmdtop = nn.ModuleList(CMDTop() for _ in range(3))
        self.torch_pips_mixer = nn.Linear(1, 1)

    def tracks_from_cost_volume(self, features):
        return features.mean()

    def forward(self, video, query_points, query_chunk_size=64):
        if not (video.shape[-1] == 3 and video.min() < 0 and video.max() <= 1):
            raise ValueError("layout or range of the video")
        frames = video.shape[1]
        features = self.resnet_torch(video.flatten(0, 1).permute(0, 3, 1, 2))
        for _ in range(0, query_points.shape[1], query_chunk_size):
            self.tracks_from_cost_volume(features)
            for _ in range(self.num_pips_iter):
                for encoder in self.cmdtop:
                    sampled = utils.map_coordinates_2d(features, query_points)
                    encoder(sampled[..., None])
                self.torch_pips_mixer(sampled[..., None])
        tracks = query_points[:, :, None, [2, 1]].expand(-1, -1, frames, -1)
        certain = torch.full(tracks.shape[:-1], -20.0)
        return {"tracks": tracks, "occlusion": certain, "expected_dist": certain}
