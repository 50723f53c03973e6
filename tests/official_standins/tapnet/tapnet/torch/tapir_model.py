import torch
from torch import nn

from tapnet.torch import utils


class TAPIR(nn.Module):
    def __init__(self, pyramid_level=1, extra_convs=True, num_pips_iter=4):
        super().__init__()
        self.num_pips_iter, self.levels = num_pips_iter, pyramid_level + 2
        self.resnet_torch = nn.Conv2d(3, 2, 1)
        self.extra_convs = nn.Conv2d(2, 2, 1) if extra_convs else None
        self.torch_pips_mixer = nn.Linear(1, 1)

    def tracks_from_cost_volume(self, features):
        return features.mean()

    def forward(self, video, query_points, query_chunk_size=64):
        if not (video.shape[-1] == 3 and video.min() < 0 and video.max() <= 1):
            raise ValueError("layout or range of the video")
        features = self.resnet_torch(video.flatten(0, 1).permute(0, 3, 1, 2))
        if self.extra_convs is not None:
            features = self.extra_convs(features)
        self.tracks_from_cost_volume(features)
        for _ in range(self.num_pips_iter):
            for _ in range(self.levels):
                sampled = utils.map_coordinates_2d(features, query_points)
            self.torch_pips_mixer(sampled[..., None])
        tracks = query_points[:, :, None, [2, 1]].expand(-1, -1, video.shape[1], -1)
        certain = torch.full(tracks.shape[:-1], -20.0)
        return {"tracks": tracks, "occlusion": certain, "expected_dist": certain}
