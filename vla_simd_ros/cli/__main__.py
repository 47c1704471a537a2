"""The ``vla_simd`` command: finds the subcommand, and turns known failures into one line each."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from vla_simd_ros import __version__

# Module (in this package) and summary of each subcommand; a module is imported when it is asked for.
_COMMANDS = {
    "inspect": ("inspect_cmd", "print the programs of a checkpoint's policy"),
    "check": ("check_cmd", "compare the engine's actions with a reference implementation"),
    "make-checkpoint": ("make_checkpoint_cmd", "write a random checkpoint in the format of a trained one"),
    "convert": ("convert_cmd", "rewrite a checkpoint of another project's layout"),
    "train": ("train_cmd", "train IMPACT, ACT or an action-token policy on demonstrations"),
    "bench": ("bench_cmd", "measure latency, beside other runtimes on request"),
    "tune": ("tune_cmd", "choose what is fastest on this processor"),
    "supply": ("supply_cmd", "predict whether a policy keeps a controller supplied with actions"),
    "evaluate": ("evaluate_cmd", "count how often a policy does what it is told, in closed loop"),
    "decoders": ("decoders_cmd", "compare decoders of a policy that spells its actions, and of its students"),
    "split": ("split_cmd", "find where to cut a policy between two executors"),
    "generate": ("generate_cmd", "let a language model answer"),
    "policy-server": ("policy_server_cmd", "serve a policy to LeRobot's robot_client"),
    "report": ("report_cmd", "report on a recorded run"),
    "replay": ("replay_cmd", "compute a recorded run again and compare"),
    "record": ("record_cmd", "record demonstrations of the simulated tasks as a LeRobot dataset"),
    "demo": ("demo_cmd", "run a simulated robot with a policy and report what happened"),
}
# Extra of this package's distribution that brings an optional module.
_EXTRAS = {
    "torch": "training",
    "onnx": "bench",
    "onnxruntime": "bench",
    "openvino": "bench",
    "nncf": "bench",
    "executorch": "bench",
    "xllamacpp": "bench",
    "mujoco": "sim",
    "matplotlib": "sim",
    "PIL": "sim",
    "rosbags": "report",
    "grpc": "server",
    "google": "server",
    "msgpack": "convert",
    "pyarrow": "dataset",
    "av": "dataset",
    "gguf": "gguf",
    "jinja2": "gguf",
}
# Modules that every installation should have, and what brings them.
_REQUIRED = {
    "numpy": "numpy",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "cv2": "opencv-python-headless",
}
_USAGE_ERROR = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the process's exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parsed = _parser(arguments).parse_args(arguments)
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away; nothing is left to be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        sentence = _explain(error)
        if sentence is None:
            raise
        print(f"vla_simd: {sentence}", file=sys.stderr)
        return _USAGE_ERROR


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, complete for the subcommand in ``arguments`` and with summaries of the others."""
    parser = argparse.ArgumentParser(
        prog="vla_simd", description="Vision-language-action policies on the CPU."
    )
    parser.add_argument("--version", action="version", version=f"vla_simd {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (module, summary) in _COMMANDS.items():
        if name == chosen:
            command = _load(module)
            command.add_parser(commands)
            commands.choices[name].set_defaults(run=command.run)
        else:
            commands.add_parser(name, help=summary)
    return parser


def _load(module: str) -> ModuleType:
    return importlib.import_module(f"vla_simd_ros.cli.{module}")


def _explain(error: Exception) -> str | None:
    """One line for an error that is the user's to solve; None for a fault of ours."""
    if isinstance(error, ModuleNotFoundError):
        return _explain_missing_module(error.name or "")
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    if type(error).__module__.partition(".")[0] == "vla_simd_ros":
        return str(error)
    return None


def _explain_missing_module(name: str) -> str | None:
    top = name.partition(".")[0]
    if name == "vla_simd_ros._engine":
        return "the engine is not built; build it with: pip install ."
    if top in _EXTRAS:
        return (
            f"this command needs '{top}', which is not installed: pip install 'vla_simd_ros[{_EXTRAS[top]}]'"
        )
    if top in _REQUIRED:
        return f"'{top}' is not installed: pip install {_REQUIRED[top]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
