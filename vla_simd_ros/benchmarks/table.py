"""Markdown tables: the first column to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> list[str]:
    """Lines of a table whose first ``text_columns`` are text, with columns aligned in the source too."""
    body = [list(row) for row in rows]
    widths = [max(3, *(len(row[i]) for row in [list(header), *body])) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i < text_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if i < text_columns else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return [line(header), line(rule), *(line(row) for row in body)]
