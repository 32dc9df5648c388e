"""``millstream quota``: list, set and delete quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from millstream.cli.clients import open_admin
from millstream.cli.options import Commands, Common
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import print_json, print_table

_PRODUCE, _FETCH, _REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
_MUTATION, _CONNECTION = "controller_mutation_rate", "connection_creation_rate"

User = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="A user, or '<default>' for all others.")
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="A client id, or '<default>' for all others.")
]

Ip = Annotated[
    str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address, or '<default>' for all others.")
]


def _limit(name: str, what: str) -> Any:
    return typer.Option(f"--{name.replace('_', '-')}", metavar="NUMBER", help=what)


ProduceRate = Annotated[int | None, _limit(_PRODUCE, "Bytes per second that are written.")]
FetchRate = Annotated[int | None, _limit(_FETCH, "Bytes per second that are read.")]
RequestShare = Annotated[float | None, _limit(_REQUEST, "The share of one processor for requests.")]
MutationRate = Annotated[float | None, _limit(_MUTATION, "Partitions per second, created and deleted.")]
ConnectionRate = Annotated[int | None, _limit(_CONNECTION, "Connections per second, of an --ip.")]


def quota() -> None:
    """List, set and delete the quotas of users, client ids and addresses.

    [bold]Examples[/bold]

      millstream quota set --user ann --producer-byte-rate 1000000
      millstream quota list
    """


def list_quotas(common: Common) -> None:
    """List all quotas.

    [bold]Examples[/bold]

      millstream quota list
      millstream quota list --json
    """
    with open_admin(common.servers) as admin:
        found = admin.describe_client_quotas()
    if common.as_json:
        print_json(
            [
                {"user": each.user, "client_id": each.client_id, "ip": each.ip, **limits}
                for each, limits in found.items()
            ]
        )
        return
    rows = [
        (each.user or "", each.client_id or "", each.ip or "", kind, f"{limit:.15g}")
        for each, limits in found.items()
        for kind, limit in limits.items()
    ]
    print_table(("user", "client id", "ip", "quota", "limit"), rows)


def set_quotas(
    common: Common,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    producer_byte_rate: ProduceRate = None,
    consumer_byte_rate: FetchRate = None,
    request_percentage: RequestShare = None,
    controller_mutation_rate: MutationRate = None,
    connection_creation_rate: ConnectionRate = None,
) -> None:
    """Set quotas of a user, a client id, or both together, or of an address.

    [bold]Examples[/bold]

      millstream quota set --user ann --producer-byte-rate 1000000
      millstream quota set --client-id reports --consumer-byte-rate 5000000
      millstream quota set --user ann --client-id etl --request-percentage 20
      millstream quota set --ip '<default>' --connection-creation-rate 50
    """
    given: dict[str, float | None] = {
        _PRODUCE: producer_byte_rate,
        _FETCH: consumer_byte_rate,
        _REQUEST: request_percentage,
        _MUTATION: controller_mutation_rate,
        _CONNECTION: connection_creation_rate,
    }
    limits = {kind: limit for kind, limit in given.items() if limit is not None}
    if not limits:
        raise UsageError("no limit is given: add --producer-byte-rate NUMBER, or another")
    _alter(common, (user, client_id, ip), limits, "set")


def delete(common: Common, user: User = None, client_id: ClientId = None, ip: Ip = None) -> None:
    """Delete all quotas of a user, a client id, or both together, or of an address.

    [bold]Examples[/bold]

      millstream quota delete --user ann
      millstream quota delete --user ann --client-id etl
    """
    kinds = (_PRODUCE, _FETCH, _REQUEST, _MUTATION) if ip is None else (_CONNECTION,)
    _alter(common, (user, client_id, ip), dict.fromkeys(kinds), "deleted")


def _alter(
    common: Common, whose: tuple[str | None, ...], limits: Mapping[str, float | None], what: str
) -> None:
    from millstream.admin import QuotaEntity

    entity = QuotaEntity(*whose)
    if entity == QuotaEntity():
        raise UsageError("a quota is for someone: add --user USER, --client-id ID or both, or --ip ADDRESS")
    with open_admin(common.servers) as admin:
        admin.alter_client_quotas(entity, limits)
    if common.as_json:
        print_json({"user": entity.user, "client_id": entity.client_id, "ip": entity.ip, what: True})
    else:
        print(f"{entity}: {what}")


COMMANDS: Final[Commands] = {"list": list_quotas, "set": set_quotas, "delete": delete}
