"""Policies: one file each that describes a network, and the registry that finds it for a checkpoint."""
