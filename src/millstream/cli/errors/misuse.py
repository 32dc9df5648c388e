"""Rewords errors of the command line's parser into one sentence that says what to write.

Options of Kafka's shell tools are not accepted, but the error names the option to use here.
"""

from __future__ import annotations

import re
from typing import Final

import typer

from millstream.suggestions import did_you_mean

_EACH_SETTING: Final = "write --property NAME=VALUE for each setting in the file"
_SHOWN_ANYWAY: Final = "leave it out: it is shown anyway"
_ALL_PARTITIONS: Final = "leave it out: every partition is shown, with its leader"
_CONFIG_OF_TOPICS: Final = "write 'millstream topic config TOPIC'"

KAFKA_OPTIONS: Final = {
    "--topic": "write the topic's name alone",
    "--group": "write the group's name alone",
    "--from-beginning": "write --from earliest",
    "--offset": "write --from OFFSET",
    "--max-messages": "write --max",
    "--timeout-ms": "write --timeout, in seconds",
    "--whitelist": "name the topics",
    "--include": "name the topics",
    "--formatter": "write --format",
    "--value-deserializer": "write --value-format",
    "--key-deserializer": "write --key-format",
    "--consumer-property": "write --property",
    "--producer-property": "write --property",
    "--command-property": "write --property",
    "--reader-property": "write --key, --key-separator or --format",
    "--formatter-property": "write --keys, --timestamps, --headers or --format",
    "--compression-codec": "write --compression",
    "--request-required-acks": "write --property acks=1",
    "--request-timeout-ms": "write --property request.timeout.ms=N",
    "--retry-backoff-ms": "write --property retry.backoff.ms=N",
    "--message-send-max-retries": "write --property retries=N",
    "--max-block-ms": "write --property max.block.ms=N",
    "--max-memory-bytes": "write --property buffer.memory=N",
    "--batch-size": "write --property batch.size=N",
    "--max-partition-memory-bytes": "write --property batch.size=N",
    "--metadata-expiry-ms": "write --property metadata.max.age.ms=N",
    "--sync": "leave it out: the command ends when the brokers have every record",
    "--line-reader": "write --format",
    "--broker-list": "write --bootstrap-servers",
    "--isolation-level": "write --property isolation.level=read_committed",
    "--consumer.config": _EACH_SETTING,
    "--producer.config": _EACH_SETTING,
    "--reader-config": "write --key, --key-separator or --format",
    "--formatter-config": "write --keys, --timestamps, --headers or --format",
    "--skip-message-on-error": "leave it out: without --value-format every record can be shown",
    "--create": "write 'millstream topic create'",
    "--list": "write 'millstream topic list' or 'millstream group list'",
    "--describe": "write 'millstream topic describe' or 'millstream group describe'",
    "--alter": "write 'millstream topic add-partitions' or 'millstream topic config'",
    "--delete": "write 'millstream topic delete' or 'millstream group delete'",
    "--reset-offsets": "write 'millstream group reset'",
    "--delete-offsets": "write 'millstream group delete', or move it with 'millstream group reset'",
    "--add-config": "write --set NAME=VALUE",
    "--delete-config": "write --unset NAME",
    "--to-earliest": "write --to earliest",
    "--to-latest": "write --to latest",
    "--to-offset": "write --to OFFSET",
    "--to-datetime": "write --to TIME, such as 2026-01-31T12:00",
    "--by-duration": "write --to AGE, such as 15m",
    "--shift-by": "write --to shift:-100",
    "--to-current": "write --to shift:0",
    "--from-file": "write --to OFFSET --topic TOPIC:PARTITION, once for each offset",
    "--export": "write --json",
    "--members": _SHOWN_ANYWAY,
    "--offsets": _SHOWN_ANYWAY,
    "--state": _SHOWN_ANYWAY,
    "--verbose": _SHOWN_ANYWAY,
    "--execute": "leave it out: it is done unless there is --dry-run",
    "--all-topics": "leave it out: without --topic it is all topics of the group",
    "--all-groups": "name the groups: 'millstream group list' has them",
    "--exclude-internal": "leave it out: Kafka's own are listed only with --internal",
    "--topics-with-overrides": "leave it out: a topic's own settings are shown anyway",
    "--under-replicated-partitions": _ALL_PARTITIONS,
    "--under-min-isr-partitions": _ALL_PARTITIONS,
    "--at-min-isr-partitions": _ALL_PARTITIONS,
    "--unavailable-partitions": _ALL_PARTITIONS,
    "--replica-assignment": "write --replication-factor: the brokers choose where copies are",
    "--topic-id": "write the topic's name alone",
    "--entity-type": _CONFIG_OF_TOPICS,
    "--entity-name": _CONFIG_OF_TOPICS,
}
"""Options of Kafka's shell tools, and what to write here."""
_KAFKA_COMMANDS: Final = {name: KAFKA_OPTIONS[f"--{name}"] for name in ("alter", "reset-offsets")}

_AFTER_COMMANDS: Final = ("--json", "--debug", "--bootstrap-servers", "--bootstrap-server", "-b")
_COMMAND: Final = re.compile(r"No such command '(?P<name>[^']+)'")
_VALUE: Final = re.compile(
    r"Invalid value for '(?P<option>[^']+)'(?: / '[^']+')*: Input should be (?P<kind>.+)"
)
_CHOICE: Final = re.compile(
    r"Invalid value for '(?P<option>[^']+)'(?: / '[^']+')*: (?P<given>'.*') is not one of (?P<known>.+)"
)
_KINDS: Final = {
    "a valid integer, unable to parse string as an integer": "a whole number",
    "a valid integer, got a number with a fractional part": "a whole number",
    "a valid number, unable to parse string as a number": "a number",
    "greater than or equal to": "at least",
    "greater than": "more than",
    "less than or equal to": "at most",
}


def sentence(error: typer.TyperException) -> str:
    """The error without a capital and a full stop; empty when the help was printed instead."""
    message = error.format_message().strip().rstrip(".")
    if not message:
        return ""
    option = getattr(error, "option_name", None)
    hint = _instead_of(error, option) if option else None
    if hint is not None:
        return f"no such option: {option}: {hint}"
    text = message.replace(". Did you mean", ": did you mean").replace("Value error, ", "")
    command = _COMMAND.match(text)
    if command is not None and command["name"] in _KAFKA_COMMANDS:
        return f"no such command '{command['name']}': {_KAFKA_COMMANDS[command['name']]}"
    value = _VALUE.fullmatch(text)
    if value is not None:
        return f"{value['option']} must be {_in_words(value['kind'])}"
    choice = _CHOICE.fullmatch(text)
    if choice is not None:
        *others, last = choice["known"].replace("'", "").split(", ")
        return f"{choice['option']} {choice['given']} is unknown: choose {', '.join(others)} or {last}"
    return text[0].lower() + text[1:]


def _instead_of(error: typer.TyperException, option: str) -> str | None:
    """What to write in place of an unknown option."""
    context = getattr(error, "ctx", None)
    if option in _AFTER_COMMANDS and context is not None and context.parent is None:
        return f"write it after the command, as in 'millstream topic list {option}'"
    says = KAFKA_OPTIONS.get(option)
    if says is not None and (says is not _SHOWN_ANYWAY or getattr(context, "info_name", "") == "describe"):
        return says
    return did_you_mean(option, getattr(error, "possibilities", None) or ()) or None


def _in_words(kind: str) -> str:
    for theirs, ours in _KINDS.items():
        kind = kind.replace(theirs, ours)
    return kind
