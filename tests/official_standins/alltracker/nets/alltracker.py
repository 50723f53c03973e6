import torch
import utils.misc
from nets.blocks import CorrBlock
from torch import nn


class Net(nn.Module):
    def __init__(self, seqlen, use_basicencoder=False, no_split=False, init_weights=True):
        super().__init__()
        assert use_basicencoder or not init_weights, "that would download weights"
        self.use_basicencoder = use_basicencoder
        if use_basicencoder:
            self.fnet = nn.Conv2d(3, 2, 1)
        else:
            self.cnn, self.dot_conv = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)
        self.update_block, self.flow_head, self.visconf_head = nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)
        self.upsample_weight = nn.Linear(1, 1)

    def upsample_data(self, x):
        return x * utils.misc.WINDOW_STEP

    def forward_sliding(self, images, iters=4):
        if not (images.shape[2] == 3 and images.min() >= 0 and images.max() > 100):
            raise ValueError("layout or range of the frames")
        flat = images.flatten(0, 1).cuda()
        features = self.fnet(flat) if self.use_basicencoder else self.dot_conv(self.cnn(flat))
        correlation = CorrBlock(features)
        for _ in range(iters):
            x = self.update_block(correlation()[None])
            self.flow_head(x), self.visconf_head(x)
            self.upsample_data(self.upsample_weight(x))
        batch, frames, _, height, width = images.shape
        flows = torch.arange(frames)[None, :, None, None, None].expand(batch, -1, 2, height, width).float()
        return flows, torch.ones(batch, frames, 2, height, width), None, None
