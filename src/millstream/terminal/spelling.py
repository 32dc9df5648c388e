"""Errors in the words of the command line: options, and client settings under Kafka's names.

Clients and loads name their settings as Python does. Three rules put what a user types in their place:

| in the error | on the command line |
|-|-|
| ``fail_on_data_loss=False (--accept-data-loss)``, which is for both | ``--accept-data-loss`` |
| the ``setting`` that a ConfigError carries, and others with values: ``value_format=raw`` | their options |
| ``max_request_size`` and all other client settings | ``max.request.size``, and how to set it |

A name that the user has typed is the user's own (a column may be called ``group_id``) and stays as it is, and
so does whatever is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "broker": {"allow_remote": "--allow-remote"},
    "produce": {"compression_type": "--compression"},
    "consume": {
        "group_id": "--group",
        "auto_offset_reset": "--from",
        "max_records": "--max",
        "key_deserializer": "--key-format",
        "value_deserializer": "--value-format",
    },
}
"""The options of commands, by the settings of the clients that they make."""
_SCAN: Final = {
    "start": "--from",
    "end": "--until",
    "partitions": "--partition",
    "group_id": "--group",
    "value": "--value-format",
    "key": "--key-format",
    "schema": "--schema",
    "avro_schema": "--avro-schema",
    "avro_prefix": "--avro-prefix",
    "csv_delimiter": "--csv-delimiter",
    "bad_values": "--bad-values",
}
"""The options of ``millstream scan``, by the arguments of ``millstream.scan``."""
_WITH_PROPERTY: Final = ("produce", "consume", "load", "scan")

_BOTH: Final = re.compile(r"\b\w+(?:=\S+)? \((--(?:[^()]|\([^)]*\))*)\)")
_QUOTED: Final = re.compile(r"((?<!\w)'[^']*'(?!\w)|\"[^\"]*\")")
_ASSIGNED: Final = re.compile(r"\b([a-z_]+)=(\w+)")
_NAME: Final = re.compile(r"(?<![\w.'-])(?P<name>[a-z]+(?:[._][a-z0-9]+)+)(?:=(?P<value>[\w.-]+))?(?!\w)")


def as_typed(
    text: str, typed: Sequence[str], *, setting: str | None = None, is_about_a_table: bool = False
) -> str:
    """An error in the words of the command that was ``typed``. A table's columns may be called anything."""
    command = typed[0] if typed else ""
    text = _BOTH.sub(r"\1", text)
    if command == "load" and setting is not None:
        from millstream.spark.load.settings import OPTIONS

        if setting in OPTIONS:
            return _with_options(text, setting, OPTIONS)
    if command == "scan" and setting in _SCAN:
        return _with_options(text, setting, _SCAN)
    return text if is_about_a_table else _with_client_settings(text, command, typed)


def _with_options(text: str, setting: str, options: Mapping[str, str]) -> str:
    """Put the options of a load for the setting that an error carries, and for others with their values."""
    own = options[setting]
    text = re.sub(rf"\b{setting}\b|^{own.strip('-')}\b", own, text, count=1)
    return _ASSIGNED.sub(
        lambda match: _assigned(options[match[1]], match[2]) if match[1] in options else match[0], text
    )


def _assigned(option: str, value: str | None) -> str:
    return option if value in (None, "True", "False") else f"{option} {value}"


def _with_client_settings(text: str, command: str, typed: Sequence[str]) -> str:
    options = {**_OPTIONS.get(command, {}), "bootstrap_servers": "--bootstrap-servers"}
    if command == "load":
        from millstream.spark.load.settings import CLIENT_OPTIONS

        options |= CLIENT_OPTIONS
    known, met = _client_settings(), False

    def translate(match: re.Match[str]) -> str:
        nonlocal met
        name, value = match["name"].replace(".", "_"), match["value"]
        if re.search(rf"\b{re.escape(match['name'])}\b", " ".join(typed)):
            return match[0]
        if name in options:
            return _assigned(options[name], value)
        if "." in match["name"] or name not in known:
            return match[0]
        met = True
        return name.replace("_", ".") + ("" if value is None else f"={value}")

    parts = _QUOTED.split(text)
    parts[::2] = [_NAME.sub(translate, part) for part in parts[::2]]  # every other one is quoted
    text = "".join(parts)
    if met and command in _WITH_PROPERTY and "--property" not in {*typed, *text.split()}:
        text += " (--property NAME=VALUE gives a setting)"
    return text


def _client_settings() -> set[str]:
    from millstream.config import ConsumerConfig, ProducerConfig

    configs = (ConsumerConfig, ProducerConfig)
    return {name for config in configs for name in (*config.names(), *config.aliases())}
