"""The documentation's site, which ``make docs`` builds into site/. The pages are plain Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "millstream"
release = __version__
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
include_patterns = ["docs/*.md", "examples/README.md", "benchmarks/RESULTS.md", "CHANGELOG.md"]
root_doc = "docs/README"
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_title = "millstream"
html_copy_source = False
suppress_warnings = ["misc.highlighting_failure"]

PAGES = """
```{toctree}
:hidden:

tutorial
consumer
producer
registry
load
load-formats
load-scenarios
sinks
sinks-postgresql
sinks-topic
scan
spark
broker
broker-security
testing
cli
console
security
operations
metrics
troubleshooting
settings
protocol
compatibility
architecture
decisions
file-map
../examples/README
../benchmarks/RESULTS
../CHANGELOG
```
"""
PROGRAM = re.compile(
    r"\[(?P<name>[^\]]+)\]\([^)\s]+(?:\.py|\.toml|\.lock|LICENSE|CONTRIBUTING\.md|\.\./README\.md)\)"
)


def setup(app: Sphinx) -> None:
    """Let the front page list the others; a link to what the site does not hold becomes its name."""

    def read(app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = PROGRAM.sub(r"\g<name>", source[0])
        if page == root_doc:
            source[0] += PAGES

    app.connect("source-read", read)
