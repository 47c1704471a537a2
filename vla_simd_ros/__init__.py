"""Vision-language-action policies for robots, on the CPU that the robot already has."""

__version__ = "0.1.0"
