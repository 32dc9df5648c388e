"""Contexts: how to reach a cluster, under a name, in one file of the user's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millstream.suggestions import nearest
from millstream.terminal.outcome import CommandError, UsageError
from millstream.terminal.private_files import changing_private, config_directory, read_private

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REFERENCE: Final = re.compile(r"\$\{(?:env|file|dir):[^}]*\}")
_LOOKS_SECRET: Final = re.compile(r"password|secret|token|jaas|credential", re.IGNORECASE)
_HIDDEN: Final = "[hidden]"


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One context. The file's settings are read whenever it is used; ``settings`` override them."""

    servers: str = ""
    """Empty where the file has them."""
    command_config: str = ""
    """The absolute path of a client.properties; may be empty."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client settings under Kafka's names; may hold secrets."""

    def shown_settings(self) -> dict[str, str]:
        """The settings, without secrets. A reference to a secret is none and is shown."""
        return {name: _HIDDEN if _is_secret(name, value) else value for name, value in self.settings.items()}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name, and the one that ``context use`` has chosen; empty for none."""

    known: Mapping[str, ClusterContext]
    current: str = ""

    def get(self, name: str) -> ClusterContext:
        """Return a context; raises UsageError, which names those that are similar."""
        if name in self.known:
            return self.known[name]
        near = " or ".join(map(repr, nearest(name, self.known, count=3)))
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"there is no context {name!r}: {hint}'millstream context list' shows all, and "
            "'millstream context add' adds one"
        )


def contexts_file() -> Path:
    """Where contexts are kept."""
    return config_directory() / "contexts.json"


def read_contexts() -> Contexts:
    """Read all contexts. Raises CommandError for a damaged file."""
    return _parsed(read_private(contexts_file()))


def add_context(name: str, added: ClusterContext, *, replace: bool) -> None:
    """Keep a context under a name. Raises UsageError for a name that is taken, unless ``replace``."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a context: use at most 64 letters, digits, dots, dashes and "
            "underscores, with a letter or digit first"
        )
    with changing_private(contexts_file()) as values:
        contexts = _parsed(values)
        if name in contexts.known and not replace:
            raise UsageError(f"there is a context {name!r} already: add --replace, or choose another name")
        _fill(values, {**contexts.known, name: added}, contexts.current)


def use_context(name: str) -> None:
    """Choose the context of commands that name no other; an empty name chooses none."""
    with changing_private(contexts_file()) as values:
        contexts = _parsed(values)
        if name:
            contexts.get(name)
        _fill(values, contexts.known, name)


def remove_context(name: str) -> None:
    """Forget a context."""
    with changing_private(contexts_file()) as values:
        contexts = _parsed(values)
        contexts.get(name)
        left = {each: context for each, context in contexts.known.items() if each != name}
        _fill(values, left, "" if contexts.current == name else contexts.current)


def _parsed(values: Mapping[str, Any]) -> Contexts:
    listed, current = values.get("contexts", {}), values.get("current", "")
    if not isinstance(listed, dict) or not isinstance(current, str):
        raise _damaged("it")
    return Contexts({name: _context(name, each) for name, each in listed.items()}, current)


def _context(name: str, values: Any) -> ClusterContext:
    if not isinstance(values, dict):
        raise _damaged(f"context {name!r}")
    servers, path = values.get("bootstrap_servers", ""), values.get("command_config", "")
    settings = values.get("settings", {})
    texts = [servers, path, *settings.values()] if isinstance(settings, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _damaged(f"context {name!r}")
    return ClusterContext(servers, path, settings)


def _damaged(what: str) -> CommandError:
    return CommandError(f"{contexts_file()} is damaged: {what} cannot be read; mend it, or delete it")


def _fill(values: dict[str, Any], known: Mapping[str, ClusterContext], current: str) -> None:
    values["current"] = current
    values["contexts"] = {
        name: {
            "bootstrap_servers": each.servers,
            "command_config": each.command_config,
            "settings": dict(each.settings),
        }
        for name, each in known.items()
    }


def _is_secret(name: str, value: str) -> bool:
    from millstream.config import AdminConfig, ConsumerConfig, ProducerConfig

    if _REFERENCE.fullmatch(value):
        return False
    spelled = name.replace(".", "_")
    kinds = (AdminConfig, ConsumerConfig, ProducerConfig)
    if any(spelled in kind.secrets() for kind in kinds):
        return True
    return not any(kind.knows(name) for kind in kinds) and bool(_LOOKS_SECRET.search(name))
