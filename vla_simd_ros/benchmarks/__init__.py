"""Measurements: this engine beside its peers, and its kernels beside the machine's ceilings."""
