"""Passes over a graph: each takes a graph and returns one with the same results."""
