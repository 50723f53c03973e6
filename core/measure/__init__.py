"""Measuring (torch, numpy): a branch of its own that nothing above records, gpus and the registry imports."""
