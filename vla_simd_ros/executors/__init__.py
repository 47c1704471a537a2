"""Executors: what computes a compiled policy, on one kind of device each."""
