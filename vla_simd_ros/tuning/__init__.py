"""Choices for one processor: the register tile, and the settings that are fastest on this machine."""
