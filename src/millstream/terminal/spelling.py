"""Errors in the words of the command line.

What clients and loads refuse they name as Python does: ``value_format=raw``, ``max_request_size``. Whoever
typed ``--value-format raw`` has never seen that name. So each error passes through here on its way out:

| in the error | on the command line |
|-|-|
| ``fail_on_data_loss=False (--accept-data-loss)`` | ``--accept-data-loss`` |
| ``value_format=raw`` | ``--value-format raw`` |
| ``schema: …``, ``starting is 'x'`` at the beginning | ``--schema: …``, ``--starting is 'x'`` |
| ``group_id``, and others with an option of their own | ``--group`` |
| ``max_request_size``, and all other settings | ``max.request.size``, and that ``--property`` sets it |

A name that the user has typed is the user's own (a column may be called ``group_id``) and stays as it is, and
so does whatever stands in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_LOAD: Final = {
    "value_format": "--value-format",
    "avro_schema": "--avro-schema",
    "avro_prefix": "--avro-prefix",
    "csv_delimiter": "--csv-delimiter",
    "csv_quote": "--csv-quote",
    "partition_by": "--partition-by",
    "add_columns": "--add-columns",
    "target_file_size": "--target-file-size",
    "max_records": "--max-records",
    "max_bytes": "--max-bytes",
    "max_seconds": "--max-seconds",
    "on_recreated": "--on-recreated",
    "fail_on_data_loss": "--accept-data-loss",
    "group_id": "--group",
    "group_instance_id": "--instance-id",
    "instance_id": "--instance-id",
    "bootstrap_servers": "--bootstrap-servers",
}
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "broker": {"allow_remote": "--allow-remote"},
    "produce": {"bootstrap_servers": "--bootstrap-servers", "compression_type": "--compression"},
    "consume": {
        "bootstrap_servers": "--bootstrap-servers",
        "group_id": "--group",
        "auto_offset_reset": "--from",
        "max_records": "--max",
        "key_deserializer": "--key-format",
        "value_deserializer": "--value-format",
    },
    "load": _LOAD,
}
_ELSEWHERE: Final = {"bootstrap_servers": "--bootstrap-servers"}
_FIRST_WORDS: Final = {
    "load": {
        "schema": "--schema",
        "sql": "--sql",
        "check": "--check",
        "checks": "--check",
        "starting": "--starting",
        "every": "--every",
        "topics": "TOPIC",
    }
}
"""Words that name an option where an error begins with them, and are plain words elsewhere."""
_WITH_PROPERTY: Final = ("produce", "consume", "load")

_BOTH_AFTER: Final = re.compile(r"\b\w+=\S+ \((--[^)]*)\)")
_BOTH_INSIDE: Final = re.compile(r"\(\w+=[^,()]*, (?=--)")
_QUOTED: Final = re.compile(r"((?<!\w)'[^']*'(?!\w)|\"[^\"]*\")")
_NAME: Final = re.compile(r"(?<![\w.'-])(?P<name>[a-z]+(?:[._][a-z0-9]+)+)(?:=(?P<value>[\w.-]+))?(?!\w)")


def as_typed(text: str, typed: Sequence[str], *, is_about_a_table: bool = False) -> str:
    """An error in the words of the command that was ``typed``. A table's columns may be called anything."""
    command = typed[0] if typed else ""
    text = _BOTH_AFTER.sub(r"\1", text)
    text = _BOTH_INSIDE.sub("(", text)
    if is_about_a_table:
        return text.replace("leave partition_by out", "leave out --partition-by").replace(
            "allow add_columns", "give --add-columns"
        )
    text = _begin(text, _FIRST_WORDS.get(command, {}))
    words = _Words(_OPTIONS.get(command, _ELSEWHERE), " ".join(typed))
    parts = _QUOTED.split(text)
    parts[::2] = map(words.put_into, parts[::2])  # every other one is quoted
    text = "".join(parts)
    if words.settings and command in _WITH_PROPERTY and "--property" not in {*typed, *text.split()}:
        text += " (--property NAME=VALUE gives a setting)"
    return text


def _begin(text: str, options: Mapping[str, str]) -> str:
    first, blank, rest = text.partition(" ")
    word = first.rstrip(":")
    return options[word] + first[len(word) :] + blank + rest if word in options else text


class _Words:
    """Puts options and Kafka's names for Python's names, and knows whether it met any setting."""

    def __init__(self, options: Mapping[str, str], typed: str) -> None:
        self._options = options
        self._typed = typed
        self.settings = False

    def put_into(self, text: str) -> str:
        return _NAME.sub(self._translate, text)

    def _translate(self, match: re.Match[str]) -> str:
        name, value = match["name"].replace(".", "_"), match["value"]
        if re.search(rf"\b{re.escape(match['name'])}\b", self._typed):
            return match[0]
        option = self._options.get(name)
        if option is not None:
            return option if value in (None, "True", "False") else f"{option} {value}"
        if "." in match["name"] or name not in _settings():
            return match[0]
        self.settings = True
        return name.replace("_", ".") + ("" if value is None else f"={value}")


def _settings() -> set[str]:
    from millstream.config import ConsumerConfig, ProducerConfig

    return {*ConsumerConfig.names(), *ProducerConfig.names()}
