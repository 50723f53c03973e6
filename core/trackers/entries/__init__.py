"""One module per family of trackers: what the registry says about it. Standard library only."""
