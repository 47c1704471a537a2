"""Policies: one file describes one network as a graph."""
