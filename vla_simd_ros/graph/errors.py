"""The error that describes a graph which cannot be."""

from __future__ import annotations


class GraphError(ValueError):
    """An operation, a name or a graph that is not well formed; the message names what and why."""
