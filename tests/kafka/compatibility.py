"""``python -m tests.kafka.compatibility``: writes the tables of docs/compatibility.md.

The table of clients comes from what the last test run left behind; clients that it did not run keep the line
that they have. The others come from the code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.kafka.clients.registry import CLIENTS
from tests.kafka.differential.known import KNOWN
from tests.kafka.error_table import DIFFERENT, TABLE
from tests.kafka.mission import ROWS
from tests.kafka.results import DIRECTORY, FEATURES

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
HINT: Final = "run python -m tests.kafka.compatibility"


def marks(features: Collection[str]) -> list[str]:
    """What the table says of a client that did this."""
    return ["yes" if feature in features else "–" for feature in FEATURES]


def clients_on_page() -> dict[str, list[str]]:
    """What the table says now, by client: the version, and a mark for each feature."""
    _, _, *lines = section(PAGE.read_text(), "clients").splitlines()
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {name: cells for name, *cells in rows}


def clients_table(before: str) -> str:
    """The clients that the last run tried; ``before`` is the table as it stands."""
    old = {line.split("|")[1].strip(): line for line in before.splitlines() if line.startswith("| ")}
    lines = [f"| client | version | {' | '.join(FEATURES)} |", "|-" * (len(FEATURES) + 2) + "|"]
    for name in CLIENTS:
        path = DIRECTORY / f"{name}.json"
        if path.exists():
            found = json.loads(path.read_text())
            lines.append(f"| {name} | {found['version']} | {' | '.join(marks(found['features']))} |")
        else:
            lines.append(old.get(name) or f"| {name} | not run |" + " |" * len(FEATURES))
    return "\n".join(lines)


def rows_table() -> str:
    lines = ["| row | what | tests, on both brokers |", "|-|-|-|"]
    for row in ROWS:
        tests = "<br>".join(f"`{test}`" for test in row.tests)
        lines.append(f"| {row.number} | {row.what} | {tests} |")
    return "\n".join(lines)


def differences_table() -> str:
    lines = ["| here | why |", "|-|-|"]
    lines += [f"| {each.what} | {each.why} |" for each in KNOWN]
    return "\n".join(lines)


def errors_table() -> str:
    lines = ["| asked for | what follows an error |", "|-|-|"]
    for asker, acts in TABLE.items():
        parts = [f"**{act.value}**: {', '.join(code.name for code in codes)}" for act, codes in acts.items()]
        lines.append(f"| {asker} | {'<br>'.join(parts)} |")
    return "\n".join(lines)


def java_table() -> str:
    lines = ["| here | Java |", "|-|-|"]
    lines += [f"| {here} | {java} |" for here, java in DIFFERENT.items()]
    return "\n".join(lines)


def section(text: str, name: str) -> str:
    """What stands between the marks of a generated table."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", text, re.DOTALL)
    assert found is not None, f"{PAGE.name} has no <!-- {name} -->"
    return found[1]


def main() -> None:
    text = PAGE.read_text()
    tables = {
        "clients": clients_table(section(text, "clients")),
        "rows": rows_table(),
        "differences": differences_table(),
        "errors": errors_table(),
        "java": java_table(),
    }
    for name, table in tables.items():
        text = text.replace(
            f"<!-- {name} -->\n{section(text, name)}\n<!-- end -->", f"<!-- {name} -->\n{table}\n<!-- end -->"
        )
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
