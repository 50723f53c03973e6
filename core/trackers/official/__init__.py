"""Adapters for official trackers: their own code, from the user's copy of the repository, never shipped.

Every module here has

    build(variant, seed=0, *, checkout=None, weights=None, frames=None, height=None, width=None,
          iterations=None, query_chunk=None) -> OfficialTracker

on the CPU, in evaluation mode, without gradients.

    variant      a key of the registry's variants
    seed         of random weights; no global random state is changed
    checkout     the top folder of the repository (or `torch.hub`); not for trackers from an installed package
    weights      None or "random", or the path of a checkpoint
    frames, height, width   of the clips that will come; needed where weights or windows are built for one size
    iterations, query_chunk  None for the tracker's own default

Raises UserError for a missing or wrong checkout, a missing package, weights that do not fit (with the first key that
does not) or a size that the weights were not made for.
"""
