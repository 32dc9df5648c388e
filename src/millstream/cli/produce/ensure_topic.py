"""A topic that ``millstream produce`` is the first to name: made, and said so, or taken for a slip.

A broker that makes topics by itself makes one for every misspelt name, too, and says nothing. So the command
looks first, and makes the topic itself: what it does depends on what is there, and on nothing else.
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
    """See to it that a topic is there; returns the partitions of one that was made now, None otherwise.

    A missing topic is made when the broker makes topics by itself and no other has nearly the same name, or
    when ``create`` says so. Raises CommandError otherwise, with what to do.
    """
    with open_admin(servers) as admin:
        if _is_there(admin, topic):
            return None
        if not create:
            _require_intent(admin, topic)
        made = admin.create_topic(topic, exist_ok=True)
        return None if made is None else len(admin.describe_topic(topic).partitions)


def _is_there(admin: Admin, topic: str) -> bool:
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
    if not _makes_topics(admin):
        raise CommandError(
            f"there is no topic {topic!r}, and the broker makes none by itself: give --create, "
            f"or 'millstream topic create {topic}' first"
        )


def _makes_topics(admin: Admin) -> bool:
    """What the broker's settings say; yes where they may not be read, as the broker has the last word."""
    try:
        broker = admin.describe_cluster().brokers[0].node_id
        entry = admin.broker_configs(broker, [_AUTO_CREATE]).get(_AUTO_CREATE)
    except BrokerError:
        return True
    return entry is None or entry.value != "false"
