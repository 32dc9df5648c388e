"""``NAME=VALUE`` as people type it: settings under Kafka's names, and the headers of records."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.cli.outcome import UsageError


def read_pair(text: str, option: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``; the value may be empty and may hold further equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{option} {text!r} has no value: write {option} NAME=VALUE")
    return name.strip(), value


def read_properties(texts: Iterable[str], option: str) -> dict[str, str]:
    """Read settings, each as ``NAME=VALUE``. The same name twice is more likely a slip than an intention."""
    properties: dict[str, str] = {}
    for text in texts:
        name, value = read_pair(text, option)
        if name in properties:
            raise UsageError(f"{option} {name} is given twice: leave one out")
        properties[name] = value
    return properties
