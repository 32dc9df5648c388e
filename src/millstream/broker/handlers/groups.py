"""The APIs of groups: everything but finding the coordinator is the coordinator's own business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.broker.handlers.produce import NO_TRANSACTIONS
from millstream.errors import ErrorCode
from millstream.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from millstream.broker.broker import Broker
    from millstream.broker.server import RequestContext
    from millstream.wire.schema import Request

GROUP: Final = 0
TRANSACTION: Final = 1


def handle_group_request(broker: Broker, request: Request, context: RequestContext) -> None:
    """Pass the request to the coordinator, which answers in its own time."""
    broker.groups.handle(request, context)


def handle_find_coordinator(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """This broker coordinates every group, and no transaction yet."""
    host, port = broker.advertised(context)
    code, message = _coordinator_problem(request.key_type, context.version)
    node_id, host, port = (broker.node_id, host, port) if not code else (-1, "", -1)
    if context.version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )


def _coordinator_problem(key_type: int, version: int) -> tuple[int, str | None]:
    if key_type == GROUP:
        return ErrorCode.NONE, None
    if key_type == TRANSACTION:
        # Before version 4 librdkafka asks: for this code alone it gives up, and shows the sentence.
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if version < 4 else ErrorCode.UNSUPPORTED_VERSION
        )
        return code, NO_TRANSACTIONS
    return ErrorCode.INVALID_REQUEST, f"{key_type} is no kind of coordinator that this broker has"
