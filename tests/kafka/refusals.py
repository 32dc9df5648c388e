"""Answers that a broker could give: a request refused with an error code, without having been carried out.

The answer to a request is made of the request itself: it names the same topics, partitions and groups, and
has the error code in one place. Where an API has several places, one inside the other (a fetch as a whole,
and each of its partitions), they are counted from the outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import ErrorCode
from millstream.wire.fields import Field
from millstream.wire.messages.api_versions import ApiVersionsResponse
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.groups import JoinGroupRequest
from millstream.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse
from millstream.wire.schema import Api, Request, Response, Struct

INNERMOST: Final = -1
_NO_LEADER: Final = -1
_PARTITION: Final = ("partition_index", "partition", "index")
_TOPIC: Final = ("name", "topic")
_ALIKE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_PARTITION, _PARTITION),
    **dict.fromkeys(_TOPIC, _TOPIC),
}
"""Fields that are called differently in requests and in answers."""
_NAMES: Final = ("name", "key", "group_id")


@dataclass
class Refusal:
    """The next request of an API from one client is refused; once, or some ``times``.

    ``level`` says where, from the outside. ``before`` is called with a request before it is refused. With
    ``holds``, those who ask again get no answer before ``over`` is set.
    """

    api: Api
    code: int
    client_id: str
    level: int = INNERMOST
    times: int = 1
    before: Callable[[Request], None] = lambda request: None
    holds: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def suits(self, client_id: str | None, request: Request) -> bool:
        """Whether this is the request to refuse: not one that has no place for the error."""
        if client_id != self.client_id or request.api is not self.api:
            return False
        if isinstance(request, JoinGroupRequest):
            return bool(request.member_id)  # the first join only asks for an id
        if isinstance(request, FetchRequest) and self.level == INNERMOST:
            return bool(request.topics)  # a session leaves out what has not changed
        return not isinstance(request, MetadataRequest) or bool(request.topics)

    @property
    def changes_the_answer(self) -> bool:
        """Whether the broker's own answer is changed: metadata name brokers, too, which clients need."""
        return self.api is METADATA


def refused(request: Request, version: int, refusal: Refusal) -> Response:
    """The answer that refuses a request."""
    answer_type = request.api.response_type
    place = _places(answer_type, version)[refusal.level]
    answer = _mirrored(answer_type, request, version, place, refusal.code)
    assert isinstance(answer, Response)
    return answer


def version_of(answer: Response, version: int) -> int:
    """The version that an answer is written in: that of the request, unless that is not known (KIP-511)."""
    is_unknown = (
        isinstance(answer, ApiVersionsResponse) and answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    )
    return 0 if is_unknown else version


def refuse_topics(answer: MetadataResponse, refusal: Refusal) -> None:
    """Put the error into an answer about topics: all of it (0), its topics (1), or their partitions (2)."""
    if refusal.level == 0:
        answer.error_code, answer.topics = refusal.code, []
    for topic in answer.topics:
        if refusal.level == 1:
            topic.error_code, topic.partitions = refusal.code, []
        for partition in topic.partitions:
            partition.error_code, partition.leader_id = refusal.code, _NO_LEADER


def _places(of: type[Struct], version: int) -> Sequence[type[Struct]]:
    """The structs that hold an error code, from the outside to the inside."""
    inside: Sequence[type[Struct]] = ()
    for each in of.__fields__:
        if each.kind == "array" and each.present(version) and not inside:
            assert each.element is not None
            inside = _places(each.element.struct_type, version) if each.element.struct_type else ()
    own = any(each.name == "error_code" and each.present(version) for each in of.__fields__)
    return (of, *inside) if own else inside


def _mirrored(of: type[Struct], source: Any, version: int, place: type[Struct], code: int) -> Struct:
    values: dict[str, Any] = {}
    for each in of.__fields__:
        if each.name == "error_code":
            values[each.name] = code if of is place else 0
        elif of is not place and (inside := _holding_errors(each, version)):
            values[each.name] = [_mirrored(inside, one, version, place, code) for one in _elements(source)]
        else:
            _copy(each, source, values)
    return of(**values)


def _holding_errors(of: Field, version: int) -> type[Struct] | None:
    """The struct of an array, if there is an error code in it."""
    if of.kind != "array" or not of.present(version) or of.element is None or not of.element.struct_type:
        return None
    return of.element.struct_type if _places(of.element.struct_type, version) else None


def _elements(source: Any) -> Sequence[Any]:
    """What a request, or a part of it, names: the elements of its first array that has any."""
    arrays = (getattr(source, each.name) for each in type(source).__fields__ if each.kind == "array")
    found: Sequence[Any] = next((each for each in arrays if each), ())
    return found


def _copy(of: Field, source: Any, values: dict[str, Any]) -> None:
    if isinstance(source, str | int):  # a name or a number stands for itself
        if of.name in (_NAMES if isinstance(source, str) else _PARTITION):
            values[of.name] = source
    else:
        names = [name for name in _ALIKE.get(of.name, (of.name,)) if hasattr(source, name)]
        if names and of.kind != "array":
            values[of.name] = getattr(source, names[0])
    if of.required:
        values.setdefault(of.name, of.default)
