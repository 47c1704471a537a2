"""A module as seen by code that is to find other things under some of its names."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class ReplacedNames(ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, module: ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
