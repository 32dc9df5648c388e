"""The shape of the code base: no import cycles, no long files, functions or folders, one meaning per name.

These are the rules of CONTRIBUTING.md that no linter checks. Layers and purity are import-linter contracts.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "millstream"
FILES = sorted(PACKAGE.rglob("*.py"))

FILE_LINES = 400
FUNCTION_LINES = 60
MODULES_PER_FOLDER = 15
COMPILED = {"millstream.spark.load.pipeline.formats.json_scan._scan"}
"""Functions that numba compiles: one function is several times faster than helpers that take arrays."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Every module of ours that a file imports anywhere: inside functions and for type checkers too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module in modules:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules else node.module


def test_no_module_imports_itself_through_others() -> None:
    modules = {module_name(path): path for path in FILES}
    graph = {name: set(imported(path, modules)) - {name} for name, path in modules.items()}
    graph["millstream"] = set()  # the public names: lazy, and for type checkers
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " -> ".join(error.args[1]))


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            name = f"{module_name(path)}.{node.name}"
            if lines > FUNCTION_LINES and name not in COMPILED:
                yield f"{name}: {lines} lines"


def test_a_file_is_one_idea_and_a_function_one_step() -> None:
    lines = {module_name(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: count for name, count in lines.items() if count > FILE_LINES}
    assert not [each for path in FILES for each in long_functions(path)]


def test_a_file_says_what_it_is_in_one_line() -> None:
    """The file map in the docs is made of these lines."""
    first = {module_name(path): (ast.get_docstring(tree(path)) or "").split("\n")[0] for path in FILES}
    assert not {name: line for name, line in first.items() if not line.endswith(".") or len(line) > 120}


def test_a_folder_can_be_held_in_the_head() -> None:
    count: dict[Path, int] = defaultdict(int)
    for path in FILES:
        count[path.parent] += path.name != "__init__.py"
    assert not {str(folder): n for folder, n in count.items() if n > MODULES_PER_FOLDER}


def test_a_class_name_means_one_thing_within_an_area() -> None:
    places: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in FILES:
        area = path.relative_to(PACKAGE).parts[0]
        if area == "wire":  # structs of the protocol, under the protocol's names
            continue
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                places[area, node.name].add(module_name(path))
    assert not {key: sorted(found) for key, found in places.items() if len(found) > 1}


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", text))
    assert len(named) >= 20
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]
