import torch
from torch import nn


class CorrBlock:
    def build_pyramid(self, features):
        self.features = features

    def index_pyramid(self):
        return self.features.mean()


def upsample_flow(flow):
    return flow


class RAFT(nn.Module):
    def __init__(self, with_mask):
        super().__init__()
        self.feature_encoder, self.context_encoder = nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 1)
        self.corr_block = CorrBlock()
        self.update_block = nn.Linear(1, 1)
        self.mask_predictor = nn.Linear(1, 1) if with_mask else None

    def forward(self, image1, image2, num_flow_updates=12):
        if not (image1.shape[1] == 3 and image1.min() < 0 and image1.max() <= 1):
            raise ValueError("layout or range of the frames")
        self.corr_block.build_pyramid(self.feature_encoder(image2))
        self.context_encoder(image1)
        flow = torch.ones(image1.shape[0], 2, *image1.shape[-2:])  # one pixel right and down
        flows = []
        for _ in range(num_flow_updates):
            x = self.update_block(self.corr_block.index_pyramid()[None])
            if self.mask_predictor is not None:
                self.mask_predictor(x)
            flows.append(upsample_flow(flow))
        return flows


def raft_large(weights=None):
    return RAFT(True)


def raft_small(weights=None):
    return RAFT(False)
