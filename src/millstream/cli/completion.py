"""Shell completion: names of topics and groups from the broker, and fixed words.

It must be fast and silent: no waiting for a broker that does not answer, nothing printed into the prompt.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import typer
from typer import _completion_shared

from millstream.cli.connection import connection_of, for_client
from millstream.cli.contexts import read_contexts
from millstream.settings import Address, read_addresses

if TYPE_CHECKING:
    from millstream.admin import Admin

_BASH: Final = r"""
%(complete_func)s() {
    # Bash splits words at : and =, as in HOST:PORT and --option=value. Join them again.
    local IFS=$'\n' words=() word current last=-1 joins= place
    for (( place = 0; place <= COMP_CWORD; place++ )); do
        word=${COMP_WORDS[place]}
        # After an option a : is a word of its own, as in --key-separator :
        if [[ $joins ]] || [[ $last -gt 0 && ( $word == =* ||
            $word == :* && ( ${words[last]} != -* || ${words[last]} == *=* ) ) ]]; then
            words[last]+=$word
            joins=
            [[ $word == *[:=] ]] && joins=1
        else
            words[++last]=$word
            joins=
        fi
    done
    COMPREPLY=( $( env COMP_WORDS="${words[*]}" \
                   COMP_CWORD=$last \
                   %(autocomplete_var)s=complete_bash $1 ) )
    # The shell replaces only the part after the last : or =.
    current=${COMP_WORDS[COMP_CWORD]}
    [[ $current == [:=]* ]] && current=
    word=${words[last]%%"$current"}
    words=()
    for place in "${COMPREPLY[@]#"$word"}"; do
        [[ $place ]] && words+=( "$place" )
        [[ $place == *: ]] && compopt -o nospace 2> /dev/null
    done
    COMPREPLY=( "${words[@]}" )
    return 0
}

complete -o default -F %(complete_func)s %(prog_name)s
"""

Completer = Callable[[typer.Context, str], list[str]]

_CONNECT_SECONDS: Final = 0.3
_ANSWER_SECONDS: Final = 1.0


def use_own_bash_script() -> None:
    """Replace typer's bash script, which does not join split words.

    Typer has no public way to do this. If it keeps its scripts elsewhere, its own script stays.
    """
    getattr(_completion_shared, "_completion_scripts", {})["bash"] = _BASH


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with ``incomplete``; internal topics only after an underscore."""
    with suppress(Exception), _admin(context) as admin:
        names = admin.list_topics(internal=incomplete.startswith("_"), timeout=_ANSWER_SECONDS)
        return _matching(names, context, incomplete)
    return []


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """The groups that begin with ``incomplete``."""
    with suppress(Exception), _admin(context) as admin:
        found = admin.list_groups(timeout=_ANSWER_SECONDS)
        return _matching([one.group_id for one in found], context, incomplete)
    return []


def contexts(context: typer.Context, incomplete: str) -> list[str]:
    """The contexts that begin with ``incomplete``."""
    with suppress(Exception):
        return sorted(name for name in read_contexts().known if name.startswith(incomplete))
    return []


def sinks(context: typer.Context, incomplete: str) -> list[str]:
    """The prefixes of sink addresses."""
    from millstream.spark.sinks.kinds import prefixes

    return [prefix for prefix in prefixes() if prefix.startswith(incomplete)]


def words(*known: str) -> Completer:
    """A completer for a fixed set of words."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def _matching(names: list[str], context: typer.Context, incomplete: str) -> list[str]:
    """Names that begin with ``incomplete`` and were not typed yet."""
    typed = {word for value in context.params.values() if isinstance(value, list | tuple) for word in value}
    return sorted(name for name in names if name.startswith(incomplete) and name not in typed)


@contextmanager
def _admin(context: typer.Context) -> Iterator[Admin]:
    """An Admin client. Raises at once where no broker listens."""
    logging.disable(logging.CRITICAL)
    declared = next(each.default for each in context.command.params if each.name == "servers")
    found = connection_of(context, context.params.get("servers") or str(declared))
    if not any(map(_answers, read_addresses(found.servers))):
        raise ConnectionError(found.servers)
    from millstream.admin import Admin
    from millstream.config import AdminConfig

    settings = {**for_client(AdminConfig, found.settings), "bootstrap.servers": found.servers}
    with Admin({"client.id": "millstream-cli", **settings}) as admin:
        yield admin


def _answers(address: Address) -> bool:
    try:
        socket.create_connection(address, timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
