import numpy as np
import torch


def restore_model_from_jax_checkpoint(model, path):
    arrays = dict(np.load(path))
    model.head.weight.data.copy_(torch.tensor(arrays["head/kernel"]))
    return model
