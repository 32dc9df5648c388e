"""The chart of reading clients, as SVG: drawn from RESULTS.md, so that it never says anything else.

It has no background of its own, and colours for a light and for a dark page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks import report

CHART = Path(__file__).parent.parent / "docs" / "benchmark.svg"
SECTION = "Clients: reading 100 B records"
_OURS, _LIMIT = "millstream", "raw limit"

_WIDTH, _LEFT, _RIGHT = 880, 236, 176
_TOP, _ROW, _BAR = 78, 30, 18
_BARS = _WIDTH - _LEFT - _RIGHT

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #57606a; font-size: 12px }
.ours { fill: #0969da } .theirs { fill: #8c959f }
.limit { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
.strong { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #9198a1 }
  .ours { fill: #4493f8 } .theirs { fill: #656c76 } .limit { stroke: #9198a1 }
}
"""


class Bar(NamedTuple):
    """One client: records a second, and what it took, as the table has it."""

    name: str
    rate: float
    cpu: str
    memory: str


def draw(target: Path = CHART) -> Path:
    """Write the chart; raises ValueError when the clients were not measured yet."""
    text = report.read().get(SECTION)
    if text is None:
        raise ValueError(f"RESULTS.md has no section '{SECTION}': run `python -m benchmarks clients` first")
    target.write_text(svg(bars(text)))
    return target


def bars(text: str) -> list[Bar]:
    """The rows of a section's table, the fastest first."""
    rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    found = [
        Bar(cells[0], float(rate[0].replace(",", "")), cells[4].strip("* "), cells[5].strip("* "))
        for cells in rows
        if len(cells) == 6 and (rate := re.match(r"[\d,]+", cells[1]))
    ]
    if not found:
        raise ValueError(f"the section '{SECTION}' has no figures")
    return sorted(found, key=lambda bar: -bar.rate)


def svg(found: Sequence[Bar]) -> str:
    """Bars from left to right, with their figures, CPU and memory beside them."""
    height = _TOP + _ROW * len(found) + 34
    size = f'viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_summary(found)}">',
            f"<style>{_STYLE}</style>",
            _text(0, 20, "Reading 100 B records from one partition", "title"),
            _text(0, 42, "millions of records a second; more is better", "quiet"),
            _text(_WIDTH - 92, 62, "CPU for 1 M", "quiet", "end"),
            _text(_WIDTH, 62, "peak memory", "quiet", "end"),
            *_rows(found),
            _text(
                0,
                height - 8,
                "Raw limit: a socket that drops what it receives. Medians, one machine.",
                "quiet",
            ),
            "</svg>\n",
        ]
    )


def _rows(found: Sequence[Bar]) -> Iterator[str]:
    longest = max(bar.rate for bar in found)
    for place, bar in enumerate(found):
        top = _TOP + place * _ROW
        width = max(2.0, bar.rate / longest * (_BARS - 48))
        kind = "ours" if _OURS in bar.name else "limit" if bar.name == _LIMIT else "theirs"
        strong = "strong" if kind == "ours" else ""
        base = top + _BAR - 4
        yield _text(_LEFT - 12, base, bar.name, strong, "end")
        yield f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="3"/>'
        yield _text(_LEFT + width + 8, base, _millions(bar.rate), strong)
        yield _text(_WIDTH - 92, base, bar.cpu, "quiet", "end")
        yield _text(_WIDTH, base, bar.memory, "quiet", "end")


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _millions(rate: float) -> str:
    return f"{rate / 1e6:.1f} M" if rate >= 1e6 else f"{rate / 1e6:.2f} M"


def _summary(found: Sequence[Bar]) -> str:
    words = "Records a second: " + ", ".join(f"{bar.name} {_millions(bar.rate)}" for bar in found)
    return escape(words, {'"': "&quot;"})
