"""Handles FindCoordinator. The coordinator itself answers all other requests about groups."""

from __future__ import annotations

from typing import Final

from millstream.broker.dispatch import handles
from millstream.broker.handlers.produce import NO_TRANSACTIONS
from millstream.broker.request_context import RequestContext
from millstream.broker.services import Services
from millstream.errors import ErrorCode
from millstream.wire.messages.groups import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP: Final = 0
TRANSACTION: Final = 1


@handles(FIND_COORDINATOR)
def find_coordinator(
    broker: Services, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name this broker as the coordinator of every group; transactions have none yet."""
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
        # librdkafka uses versions before 4; only for this code does it give up and show the message.
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if version < 4 else ErrorCode.UNSUPPORTED_VERSION
        )
        return code, NO_TRANSACTIONS
    return ErrorCode.INVALID_REQUEST, f"{key_type} is not a type of coordinator that this broker has"
