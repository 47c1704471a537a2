"""Comparison of the engine's actions with those of reference implementations, on raw observations."""
