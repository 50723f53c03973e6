from torch import nn


class CMDTop(nn.Linear):
    def __init__(self):
        super().__init__(1, 1)
