"""The chart says what RESULTS.md says, and is proper SVG."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as command
from benchmarks import chart, report
from benchmarks.chart import Bar, bars, svg
from benchmarks.report import Section, ratio, table

SVG = "{http://www.w3.org/2000/svg}"
HEAD = ("", "records/s", "beside b", "of the raw limit", "CPU for 1 M records", "peak memory")
ROWS = [
    ("b & <co>", "1,200,000 (1,100,000-1,300,000)", ratio(1, 1), "5%", "1.10 s", "600 MB"),
    ("millstream poll_arrow", "12,000,000 (11,000,000-13,000,000)", ratio(10, 1), "50%", "0.09 s", "240 MB"),
    ("raw limit", "24,000,000 (23,000,000-25,000,000)", ratio(20, 1), "100%", "0.02 s", "26 MB"),
    ("slow", "90,000 (80,000-95,000)", ratio(0.1, 1), "0%", "9.00 s", "70 MB"),
]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "RESULTS.md"
    monkeypatch.setattr(report, "RESULTS", path)
    return path


def test_the_rows_of_the_table_the_fastest_first() -> None:
    found = bars("Some | words.\n\n" + table(HEAD, ROWS) + "\n\n_today_")
    assert [(bar.name, bar.rate) for bar in found] == [
        ("raw limit", 24e6),
        ("millstream poll_arrow", 12e6),
        ("b & <co>", 1.2e6),
        ("slow", 9e4),
    ]
    assert found[1] == Bar("millstream poll_arrow", 12e6, "0.09 s", "240 MB")


def test_bars_are_as_long_as_their_figures_say() -> None:
    picture = ElementTree.fromstring(svg(bars(table(HEAD, ROWS))))
    widths = [float(bar.attrib["width"]) for bar in picture.iter(f"{SVG}rect")]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert widths[1] == pytest.approx(10 * widths[2], rel=0.01)
    assert [bar.attrib["class"] for bar in picture.iter(f"{SVG}rect")] == [
        "limit",
        "ours",
        "theirs",
        "theirs",
    ]
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"24.0 M", "12.0 M", "1.2 M", "0.09 M", "b & <co>", "600 MB", "0.09 s"} <= set(words)
    assert "millstream poll_arrow 12.0 M" in picture.attrib["aria-label"]


def test_nothing_is_drawn_outside() -> None:
    many = [Bar(f"client {number}", 1e6 * (number + 1), "1 s", "1 MB") for number in range(20)]
    picture = ElementTree.fromstring(svg(many))
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for bar in picture.iter(f"{SVG}rect"):
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) < width
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) < height
    assert all(0 < float(text.attrib["y"]) < height for text in picture.iter(f"{SVG}text"))


def test_there_are_colours_for_light_and_dark_pages() -> None:
    assert "prefers-color-scheme: dark" in svg(bars(table(HEAD, ROWS)))


def test_it_is_drawn_from_the_report(results: Path, tmp_path: Path) -> None:
    report.write([Section(chart.SECTION, table(HEAD, ROWS)), Section("Other", table(HEAD, ROWS[:1]))])
    drawn = chart.draw(tmp_path / "chart.svg")
    assert "12.0 M" in drawn.read_text()


def test_without_figures_it_says_what_to_do(results: Path) -> None:
    with pytest.raises(ValueError, match="python -m benchmarks clients"):
        chart.draw()
    report.write([Section(chart.SECTION, "nothing yet")])
    with pytest.raises(ValueError, match="no figures"):
        chart.draw()
    assert command.main(["chart"]) == 1
