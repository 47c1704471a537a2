"""Which policies a server gives out: one that it was started with, or those below a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vla_simd_ros.inference import Policy
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.requests import PolicyRequest

Load = Callable[[Path], Policy]


class FixedPolicy:
    """Always the same policy, whatever name the client has for it; loaded at once."""

    def __init__(self, folder: Path, load: Load) -> None:
        self.policy = load(folder)
        """The policy."""

    def __call__(self, request: PolicyRequest) -> Policy:
        """The policy for a request."""
        return self.policy


class PolicyFolder:
    """Policies by the path that the client names, which must lie below ``root``; the last stays loaded."""

    def __init__(self, root: Path, load: Load) -> None:
        if not root.is_dir():
            raise NotADirectoryError(20, "not a folder of checkpoints", str(root))
        self._root = root.resolve()
        self._load = load
        self._folder: Path | None = None
        self._policy: Policy | None = None

    def __call__(self, request: PolicyRequest) -> Policy:
        """The policy for a request. Raises :class:`WireError` for a path that is not below the root."""
        folder = (self._root / request.checkpoint).resolve()
        if not folder.is_relative_to(self._root) or not folder.is_dir():
            raise WireError(f"there is no checkpoint '{request.checkpoint}' in the folder that is served")
        if self._policy is None or folder != self._folder:
            if self._policy is not None:
                self._policy.close()
            self._policy = None
            self._policy = self._load(folder)
            self._folder = folder
        return self._policy
