"""Quotas of clients: describe and alter them (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.admin.call import AdminCall, Outcome, outcome_of
from millstream.admin.values import DEFAULT_ENTITY, QuotaEntity
from millstream.client.targets import AnyNode
from millstream.errors import MisuseError, raise_for_code
from millstream.wire.messages.acls import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlteration,
    QuotaEntityPart,
)

_TYPES: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The types of entities on the wire, with the field of QuotaEntity."""


def describe_client_quotas(call: AdminCall) -> dict[QuotaEntity, dict[str, float]]:
    """Return all quotas."""
    request = DescribeClientQuotasRequest(components=[], strict=False)

    def check(response: DescribeClientQuotasResponse) -> None:
        raise_for_code(response.error_code, response.error_message or "describing quotas")

    response = call.send(AnyNode(), DescribeClientQuotasResponse, request, check)
    found: dict[QuotaEntity, dict[str, float]] = {}
    for entry in response.entries or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        if names.keys() <= _TYPES.keys():
            entity = QuotaEntity(
                **{_TYPES[kind]: DEFAULT_ENTITY if name is None else name for kind, name in names.items()}
            )
            found[entity] = {value.key: value.value for value in entry.values}
    return found


def alter_client_quotas(call: AdminCall, entity: QuotaEntity, quotas: Mapping[str, float | None]) -> None:
    """Set quotas of one entity, and remove those that are None."""
    parts = [
        QuotaEntityPart(entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else name)
        for kind, field in _TYPES.items()
        if (name := getattr(entity, field)) is not None
    ]
    if not parts:
        raise MisuseError("a quota is for a user, a client id or both, or an ip: name one in the QuotaEntity")
    ops = [
        QuotaAlteration(key=key, value=0.0 if value is None else float(value), remove=value is None)
        for key, value in quotas.items()
    ]
    request = AlterClientQuotasRequest(
        entries=[AlteredQuotaEntity(entity=parts, ops=ops)], validate_only=False
    )

    def ask(wanted: list[QuotaEntity]) -> Mapping[QuotaEntity, Outcome[None]]:
        response = call.send(AnyNode(), AlterClientQuotasResponse, request)
        return {
            each: outcome_of(None, result.error_code, f"quota of {each}", result.error_message)
            for each, result in zip(wanted, response.entries, strict=True)
        }

    call.each([entity], ask)
