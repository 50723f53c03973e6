import torch
from torch import nn


class CoTrackerThree(nn.Module):
    def __init__(self, window_len):
        super().__init__()
        self.window_len = window_len
        self.fnet = nn.Conv2d(3, 2, 1)
        self.corr_mlp = nn.Linear(1, 1)
        self.updateformer = nn.Linear(1, 1)

    def get_track_feat(self, features):
        return features.mean()

    def get_correlation_feat(self, features):
        return features.mean()

    def forward(self, video, queries, iters=4):
        if not (video.shape[2] == 3 and video.min() >= 0 and video.max() > 100):
            raise ValueError("layout or range of the video")
        features = self.fnet(video.flatten(0, 1))
        self.get_track_feat(features)
        for _ in range(iters):
            for _ in range(4):
                self.corr_mlp(self.get_correlation_feat(features)[None])
            self.updateformer(features.mean()[None])
        tracks = queries[:, None, :, 1:].expand(-1, video.shape[1], -1, -1)
        likely = torch.ones(tracks.shape[:-1])
        return tracks, likely, likely, None
