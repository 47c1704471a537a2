"""What can be wrong with a checkpoint, or with an instruction given to it."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint folder cannot be used; the message names the file, the value and the expectation."""


class InstructionError(ValueError):
    """An instruction cannot be tokenized (it is empty)."""
