"""Checkpoints in the layouts of other projects, rewritten as the folders that this package loads."""
