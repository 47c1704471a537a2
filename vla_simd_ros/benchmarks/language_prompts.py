"""Prompts for a language model: pieces of a text, cut to a number of tokens."""

from __future__ import annotations

from pathlib import Path

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.language import Prompt
from vla_simd_ros.checkpoints.gguf import GgufFile
from vla_simd_ros.language.gguf_tokenizer import GgufTokenizer

_TEXT = """The robot stands at a table on which somebody has left a red cube, a blue cup and an open box. Its
camera looks down from above and sees all of them, as well as its own gripper. It has been told to put
the cube into the box. First it moves its arm over the cube, slowly, because the cup is in the way; then
it opens the gripper, goes down until the cube is between its fingers, and closes them. When it has
lifted the cube it looks again: has anything moved? The cup has, a little, but the box is where it was.
So the arm turns to the left, stops above the box, and lets go. Somebody asks what else it could do with
the things on the table, and it answers:"""


def make_prompts(path: Path, number: int, tokens: int, count: int) -> list[Prompt]:
    """Prompts of ``tokens`` tokens, which begin at other places of a text that repeats itself. Raises
    CheckpointError for a file without a tokenizer that is known."""
    ids = GgufTokenizer(GgufFile(path)).encode(_TEXT)
    if len(ids) <= number:
        raise BenchmarkError(f"{path}: the text has {len(ids)} tokens, expected more than {number}")
    step = len(ids) // number
    ring = ids * (tokens // len(ids) + 2)
    return [Prompt(tuple(ring[i * step : i * step + tokens]), count) for i in range(number)]
