"""The report of a recorded run: words for a terminal, one HTML file, or one picture."""

from __future__ import annotations

import base64
import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from vla_simd_ros.nodes.demo_report import Report, summarize
from vla_simd_ros.nodes.demo_table import format_report
from vla_simd_ros.recording.picture import draw_run
from vla_simd_ros.recording.run import Run
from vla_simd_ros.recording.starvation_causes import Starvation, starvations

SUFFIXES = (".html", ".png")

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em auto; max-width: 88em; color: #222; }}
img {{ max-width: 100%; }}
pre {{ background: #f6f6f6; padding: 1em; overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; padding: 0.25em 1.2em 0.25em 0; border-bottom: 1px solid #ddd; }}
</style>
</head>
<body>
<h1>{title}</h1>
<h2>Starvation</h2>
{starvation}
<h2>Timeline</h2>
<img alt="timeline, ages and latency budget" src="data:image/png;base64,{picture}">
<h2>Numbers</h2>
<pre>{table}</pre>
</body>
</html>
"""


class ReportError(ValueError):
    """A report that cannot be written as asked."""


def write_report(run: Run, title: str, path: Path) -> str:
    """Write the report to `path`, a .html or .png file; the same in words, for a terminal.

    Raises:
        ReportError: another kind of file.
    """
    check_suffix(path)
    found = starvations(run)
    report = summarize(run.recording, [])
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        draw_run(run, report, found, title, path)
    else:
        path.write_text(_page(run, report, found, title), encoding="utf-8")
    return format_report(report) + "\n\n" + _in_words(run, found)


def check_suffix(path: Path) -> None:
    """Raises ReportError for a file that is neither HTML nor a picture."""
    if path.suffix not in SUFFIXES:
        raise ReportError(f"{path}: expected a file that ends with {' or '.join(SUFFIXES)}")


def _page(run: Run, report: Report, found: Sequence[Starvation], title: str) -> str:
    with TemporaryDirectory() as folder:
        picture = Path(folder) / "run.png"
        draw_run(run, report, found, title, picture)
        encoded = base64.b64encode(picture.read_bytes()).decode("ascii")
    return _PAGE.format(
        title=html.escape(title),
        starvation=_starvation_table(run, found),
        picture=encoded,
        table=html.escape(format_report(report)),
    )


def _starvation_table(run: Run, found: Sequence[Starvation]) -> str:
    if not found:
        return f"<p>{_without(run).capitalize()}.</p>"
    rows = "\n".join(
        f"<tr><td>{run.recording.seconds(each.start):.2f} s</td>"
        f"<td>{(each.end - each.start) * 1e-6:.0f} ms</td>"
        f"<td>{html.escape(each.cause.value)}</td><td>{html.escape(each.detail)}</td></tr>"
        for each in found
    )
    return f"<table><tr><th>at</th><th>for</th><th>cause</th><th>what speaks for it</th></tr>\n{rows}</table>"


def _without(run: Run) -> str:
    """What there is to say where no starvation has been found."""
    return "the rows never ran out" if run.recording.executor else "unknown, executor_state was not recorded"


def _in_words(run: Run, found: Sequence[Starvation]) -> str:
    if not found:
        return f"starvation: {_without(run)}"
    counts = Counter(each.cause.value for each in found)
    lines = ["starvation: " + ", ".join(f"{count} x {cause}" for cause, count in counts.items())]
    lines += [
        f"  at {run.recording.seconds(each.start):8.2f} s for {(each.end - each.start) * 1e-6:6.0f} ms: "
        f"{each.cause.value} ({each.detail})"
        for each in found
    ]
    return "\n".join(lines)
