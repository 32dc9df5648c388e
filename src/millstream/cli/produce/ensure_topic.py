"""Creates the topic of ``millstream produce`` if it is missing, unless its name looks like a typo.

A broker that creates topics automatically would silently create one for every misspelt name. So the command
checks first, and creates the topic itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.cli.clients import open_admin
from millstream.cli.errors.typos import typo_of
from millstream.errors import BrokerError, InvalidTopicError, UnknownTopicOrPartitionError
from millstream.terminal.outcome import CommandError

if TYPE_CHECKING:
    from millstream.admin import Admin

_AUTO_CREATE: Final = "auto.create.topics.enable"


def ensure_topic(servers: str, topic: str, *, create: bool) -> int | None:
    """Ensure that a topic exists; returns the number of partitions if it was created, else None.

    A missing topic is created if the broker creates topics automatically and no other topic has a similar
    name, or if ``create`` is true. Otherwise raises CommandError, which says what to do.
    """
    with open_admin(servers) as admin:
        if _exists(admin, topic):
            return None
        if not create:
            _require_intent(admin, topic)
        made = admin.create_topic(topic, exist_ok=True)
        return None if made is None else len(admin.describe_topic(topic).partitions)


def _exists(admin: Admin, topic: str) -> bool:
    try:
        admin.describe_topic(topic)
    except UnknownTopicOrPartitionError:
        return False
    except InvalidTopicError as error:
        raise CommandError(
            f"{topic!r} is not a legal topic name: use letters, digits, '.', '_' and '-', at most 249"
        ) from error
    return True


def _require_intent(admin: Admin, topic: str) -> None:
    near = typo_of(topic, admin.list_topics())
    if near is not None:
        raise CommandError(f"there is no topic {topic!r}: did you mean {near!r}? --create makes a new one")
    if not _auto_creates_topics(admin):
        raise CommandError(
            f"there is no topic {topic!r}, and the broker creates none automatically: give --create, "
            f"or 'millstream topic create {topic}' first"
        )


def _auto_creates_topics(admin: Admin) -> bool:
    """The broker's ``auto.create.topics.enable``; true where it cannot be read: the broker decides then."""
    try:
        broker = admin.describe_cluster().brokers[0].node_id
        entry = admin.broker_configs(broker, [_AUTO_CREATE]).get(_AUTO_CREATE)
    except BrokerError:
        return True
    return entry is None or entry.value != "false"
