from torch import nn

from cotracker.models.build_cotracker import build_cotracker


class CoTrackerPredictor(nn.Module):
    def __init__(self, checkpoint=None, offline=True, v2=False, window_len=60):
        super().__init__()
        self.model = build_cotracker(checkpoint, offline=offline, window_len=window_len, v2=v2)

    def forward(self, video, queries):
        tracks, visibility, *_ = self.model.forward(video=video, queries=queries, iters=6)
        return tracks, visibility > 0.9


class CoTrackerOnlinePredictor(CoTrackerPredictor):
    def __init__(self, checkpoint=None, offline=False, v2=False, window_len=16):
        super().__init__(checkpoint, offline, v2, window_len)
        self.step = window_len // 2

    def forward(self, video_chunk, is_first_step=False, queries=None):
        if is_first_step:
            self.queries, self.seen = queries, 0
            return None, None
        assert video_chunk.shape[1] <= 2 * self.step
        self.seen += video_chunk.shape[1] if not self.seen else video_chunk.shape[1] - self.step
        tracks, visibility, *_ = self.model(video=video_chunk, queries=self.queries, iters=6)
        return tracks[:, :1].expand(-1, self.seen, -1, -1), visibility[:, :1].expand(-1, self.seen, -1) > 0.6
