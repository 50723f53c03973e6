import torch
from torch import nn

torch.manual_seed(0)


class CorrBlock:
    def __init__(self, features):
        self.features = features

    def corr(self):
        return self.features.mean()

    def sample(self):
        return self.features.mean()


class CoTracker2(nn.Module):
    def __init__(self, window_len):
        super().__init__()
        self.window_len = window_len
        self.fnet = nn.Conv2d(3, 2, 1)
        self.updateformer = nn.Linear(1, 1)

    def forward(self, video, queries, iters=4):
        if not (video.shape[2] == 3 and video.min() >= 0 and video.max() > 100):
            raise ValueError("layout or range of the video")
        features = self.fnet(video.flatten(0, 1))
        block = CorrBlock(features)
        for _ in range(iters):
            block.corr()
            block.sample()
            self.updateformer(features.mean()[None])
        tracks = queries[:, None, :, 1:].expand(-1, video.shape[1], -1, -1)
        return tracks, torch.ones(tracks.shape[:-1]), None
