"""The pure authorizer, filters, and the table of permissions."""

from __future__ import annotations

import pytest

from millstream.broker.access.authorizer import Authorizer
from millstream.broker.access.table import TABLE
from millstream.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from millstream.wire import apis

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
DENY = Permission.DENY
HOST = "10.0.0.1"


def allowed(
    acls: list[Acl], operation: Operation, name: str, who: str = "User:ann", host: str = HOST
) -> bool:
    return Authorizer(acls).allows(who, host, operation, TOPIC, name)


def test_every_served_api_is_in_the_table() -> None:
    missing = [api.name for api in apis.all_apis().values() if api not in TABLE]
    assert missing == [], "each API that is served needs a line in the table of permissions"


def test_nothing_is_allowed_without_acls_unless_the_setting_says_so() -> None:
    assert not Authorizer().allows("User:ann", HOST, Operation.READ, TOPIC, "t")
    everyone = Authorizer(allow_if_no_acl=True)
    assert everyone.allows("User:ann", HOST, Operation.READ, TOPIC, "t")
    everyone.replace([Acl(TOPIC, "t", "User:bob", Operation.READ)])
    assert not everyone.allows("User:ann", HOST, Operation.READ, TOPIC, "t"), "the topic has an ACL now"
    assert everyone.allows("User:ann", HOST, Operation.READ, TOPIC, "other")


def test_literal_prefixed_and_wildcard_names() -> None:
    assert allowed([Acl(TOPIC, "orders", "User:ann", Operation.READ)], Operation.READ, "orders")
    assert not allowed([Acl(TOPIC, "orders", "User:ann", Operation.READ)], Operation.READ, "orders2")
    prefixed = Acl(TOPIC, "ord", "User:ann", Operation.READ, pattern=PatternType.PREFIXED)
    assert allowed([prefixed], Operation.READ, "orders") and allowed([prefixed], Operation.READ, "ord")
    assert not allowed([prefixed], Operation.READ, "or")
    assert allowed([Acl(TOPIC, "*", "User:ann", Operation.READ)], Operation.READ, "anything")
    star = Acl(TOPIC, "*", "User:ann", Operation.READ, pattern=PatternType.PREFIXED)
    assert not allowed([star], Operation.READ, "anything"), "a prefix is no wildcard"


def test_hosts_and_principals() -> None:
    here = Acl(TOPIC, "t", "User:ann", Operation.READ, host=HOST)
    assert allowed([here], Operation.READ, "t")
    assert not allowed([here], Operation.READ, "t", host="10.0.0.2")
    assert not allowed([here], Operation.READ, "t", who="User:bob")
    assert allowed([Acl(TOPIC, "t", "User:*", Operation.READ)], Operation.READ, "t", who="User:bob")
    assert allowed([Acl(TOPIC, "t", "User:*", Operation.READ)], Operation.READ, "t", who="Group:x"), (
        "as in Kafka"
    )


def test_deny_wins_over_allow_and_implies_nothing() -> None:
    allow, deny = Acl(TOPIC, "*", "User:*", Operation.ALL), Acl(TOPIC, "t", "User:ann", Operation.READ, DENY)
    assert not allowed([allow, deny], Operation.READ, "t")
    assert allowed([allow, deny], Operation.DESCRIBE, "t"), "READ denied does not deny DESCRIBE"
    assert not allowed([allow, Acl(TOPIC, "t", "User:ann", Operation.ALL, DENY)], Operation.WRITE, "t")


@pytest.mark.parametrize(
    ("given", "implied"),
    [
        (Operation.READ, Operation.DESCRIBE),
        (Operation.WRITE, Operation.DESCRIBE),
        (Operation.DELETE, Operation.DESCRIBE),
        (Operation.ALTER, Operation.DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ],
)
def test_implied_operations(given: Operation, implied: Operation) -> None:
    acls = [Acl(TOPIC, "t", "User:ann", given)]
    assert allowed(acls, implied, "t")
    assert not allowed([Acl(TOPIC, "t", "User:ann", implied)], given, "t")
    assert not allowed(acls, Operation.CREATE, "t")


def test_super_users_may_do_everything() -> None:
    authorizer = Authorizer([Acl(TOPIC, "t", "User:root", Operation.ALL, DENY)], ["User:root"])
    assert authorizer.allows("User:root", HOST, Operation.READ, TOPIC, "t")
    assert authorizer.allows("User:root", HOST, Operation.ALTER, CLUSTER, "kafka-cluster")


def test_a_change_is_in_force_at_once() -> None:
    authorizer = Authorizer([Acl(TOPIC, "t", "User:ann", Operation.READ)])
    assert authorizer.allows("User:ann", HOST, Operation.READ, TOPIC, "t")
    authorizer.replace([])
    assert not authorizer.allows("User:ann", HOST, Operation.READ, TOPIC, "t")


def test_filters_find_what_they_describe() -> None:
    literal, prefixed, wildcard = (
        Acl(TOPIC, "orders", "User:ann", Operation.READ),
        Acl(TOPIC, "ord", "User:bob", Operation.WRITE, pattern=PatternType.PREFIXED),
        Acl(TOPIC, "*", "User:*", Operation.DESCRIBE, DENY),
    )
    acls = [literal, prefixed, wildcard]

    def found(**fields: object) -> list[Acl]:
        return [acl for acl in acls if AclFilter(**fields).matches(acl)]  # type: ignore[arg-type]

    assert found() == acls
    assert found(name="orders", pattern=PatternType.MATCH) == acls
    assert found(name="ordinary", pattern=PatternType.MATCH) == [prefixed, wildcard]
    assert found(name="ord") == [prefixed]
    assert found(name="orders", pattern=PatternType.LITERAL) == [literal]
    assert found(permission=DENY) == [wildcard]
    assert found(principal="User:ann") == [literal]
    assert found(resource_type=CLUSTER) == []
