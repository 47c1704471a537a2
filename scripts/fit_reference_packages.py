"""Makes LeRobot and torchvision importable in the environment that runs this.

LeRobot may be written for a later Python than this one: type parameters in brackets and ``type``
statements are rewritten in the older way. A torchvision built for another PyTorch cannot load its
compiled operators; the file that describes their shapes then fails to import and is emptied. The
networks and transforms that the references use are plain Python.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

_ALIAS = re.compile(r"^( *)type (\w+) =", re.MULTILINE)
_CLASS = re.compile(r"^( *)class (\w+)\[([^\]]+)\](?:\(([^)]*)\))?:", re.MULTILINE)
_FUNCTION = re.compile(r"^( *)def (\w+)\[([^\]]+)\]\(", re.MULTILINE)
_FUTURE = re.compile(r"^from __future__ import .*\n", re.MULTILINE)
_FIRST_IMPORT = re.compile(r"^(?:import|from) ", re.MULTILINE)


def main() -> None:
    rewritten = [path for path in sorted(package_folder("lerobot").rglob("*.py")) if fit_syntax(path)]
    print(f"rewrote the type parameters of {len(rewritten)} files of LeRobot")
    if not importable("torchvision", quiet=True):
        (package_folder("torchvision") / "_meta_registrations.py").write_text("", encoding="utf-8")
        print("took the shapes of compiled operators out of torchvision")
    for module in ("torchvision.models", "lerobot.policies.act.modeling_act", "lerobot.policies.factory"):
        if not importable(module):
            sys.exit(f"{module} cannot be imported")


def package_folder(name: str) -> Path:
    """Where package ``name`` is installed, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"package '{name}' is not installed")
    return Path(spec.origin).parent


def importable(module: str, quiet: bool = False) -> bool:
    """Whether a fresh interpreter can import ``module``; it complains to standard error unless ``quiet``."""
    complaints = subprocess.DEVNULL if quiet else None
    command = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(command, check=False, stderr=complaints).returncode == 0


def fit_syntax(path: Path) -> bool:
    """Rewrite ``path`` if this Python cannot parse it; whether it did."""
    source = path.read_text(encoding="utf-8")
    if parses(source, path):
        return False
    fitted = without_type_parameters(source)
    if not parses(fitted, path):
        # Something else is newer than this Python; only whoever imports the file needs to know.
        return False
    path.write_text(fitted, encoding="utf-8")
    return True


def parses(source: str, path: Path) -> bool:
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def without_type_parameters(source: str) -> str:
    """``source`` with its type parameters as module-level ``TypeVar`` objects."""
    names: dict[str, None] = {}

    def collect(parameters: str) -> list[str]:
        found = [parameter.split(":")[0].split("=")[0].strip() for parameter in parameters.split(",")]
        names.update(dict.fromkeys(found))
        return found

    def generic_class(match: re.Match[str]) -> str:
        indent, name, parameters, bases = match.groups()
        generic = f"_typing.Generic[{', '.join(collect(parameters))}]"
        return f"{indent}class {name}({', '.join(filter(None, (bases, generic)))}):"

    def generic_function(match: re.Match[str]) -> str:
        indent, name, parameters = match.groups()
        collect(parameters)
        return f"{indent}def {name}("

    source = _ALIAS.sub(r"\1\2 =", source)
    source = _CLASS.sub(generic_class, source)
    source = _FUNCTION.sub(generic_function, source)
    header = "import typing as _typing\n" + "".join(f"{n} = _typing.TypeVar('{n}')\n" for n in names)
    place = _FUTURE.search(source) or _FIRST_IMPORT.search(source)
    at = 0 if place is None else place.end() if place.re is _FUTURE else place.start()
    return source[:at] + header + source[at:]


if __name__ == "__main__":
    main()
