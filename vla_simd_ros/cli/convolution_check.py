"""``vla_simd check --convolution``: what the algorithm of each convolution does to its output, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vla_simd_ros.benchmarks.table import markdown_table

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.convolution_error import ConvolutionError


def convolution_table(errors: Sequence[ConvolutionError]) -> list[str]:
    """Markdown: a row for every convolution; a sentence where there is none."""
    if not errors:
        return ["the policy has no convolutions"]
    header = ("Convolution", "Kernel", "max abs", "/ largest", "rel. RMS")
    rows = [
        (
            row.layer,
            row.kernel,
            *(f"{x:.2e}" for x in (row.error.absolute, row.error.relative, row.error.rms)),
        )
        for row in errors
    ]
    return [
        "Output of each convolution, from that of the direct method for the same input:",
        "",
        *markdown_table(header, rows, text_columns=2),
    ]
