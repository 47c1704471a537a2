"""Vision-language-action policies for robots, on the CPU that the robot already has."""

from __future__ import annotations

from pkgutil import extend_path

# The generated messages and the compiled engine are installed beside these modules. With the source folder
# first on the path (python -m pytest, say), this package still finds them where they were installed.
__path__ = extend_path(__path__, __name__)

__version__ = "0.1.0"
