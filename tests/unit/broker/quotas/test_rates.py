"""Rates and quotas: windows of time, and which quota a client has."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.log.files import Files
from millstream.broker.quotas.control import ClientQuotas
from millstream.broker.quotas.rates import TokenBucket, WindowedRate
from millstream.broker.quotas.settings import QuotaSettings
from millstream.broker.quotas.table import (
    CLIENT_ID,
    USER,
    ClientQuota,
    EntityFilter,
    QuotaEntity,
    QuotaKind,
    find_quota,
    problem_with,
    problem_with_entity,
    problem_with_quotas,
)
from millstream.errors import KafkaStorageError

PRODUCE = QuotaKind.PRODUCE


def entity(**names: str | None) -> QuotaEntity:
    return QuotaEntity.of({name.replace("_", "-"): value for name, value in names.items()})


def test_a_new_rate_counts_over_all_windows_but_one() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(10_000, 0)
    assert rate.per_second(0) == 1000
    assert rate.throttle_ms(1000, 0) == 0, "that much may come at once"
    rate.record(5_000, 0)
    assert rate.throttle_ms(1000, 0) == 5000
    assert rate.throttle_ms(1000, 4999) > 0


def test_a_rate_falls_with_time_and_forgets() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(20_000, 0)
    assert rate.per_second(10_000) == 2000
    assert rate.per_second(10_999) < 2000
    assert rate.per_second(11_000) == 0 and rate.is_idle(11_000)


def test_what_was_recorded_can_be_taken_back() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(500, 0)
    rate.record(20_000, 100)
    rate.record(-20_000, 100)
    assert rate.total(100) == 500


@given(
    st.integers(2, 11),
    st.integers(1_000, 1_000_000),
    st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 3000)), min_size=1, max_size=200),
)
def test_who_pauses_as_told_keeps_to_the_limit(
    count: int, limit: int, amounts: list[tuple[int, int]]
) -> None:
    """Over any run, less than twice the limit, what may come at once, and the last amount.

    Not the limit itself: as in Kafka, a window is forgotten as a whole, so that after a pause of all windows
    as much may come at once as at first. A pause is rounded to a millisecond.
    """
    rate, now_ms, sent = WindowedRate(count, 1000), 0, 0
    for pauses, (amount, gap_ms) in enumerate(amounts):
        now_ms += gap_ms
        rate.record(amount, now_ms)
        sent += amount
        elapsed = now_ms / 1000
        assert sent - amount <= limit * ((2 - 1 / count) * elapsed + 2 * count + pauses / 1000) + 1
        now_ms += rate.throttle_ms(limit, now_ms)


def test_kafkas_order_of_quotas() -> None:
    order: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
        ({USER: "ann", CLIENT_ID: "app"}, ("ann", "app")),
        ({USER: "ann", CLIENT_ID: None}, ("ann", "app")),
        ({USER: "ann"}, ("ann", None)),
        ({USER: None, CLIENT_ID: "app"}, ("ann", "app")),
        ({USER: None, CLIENT_ID: None}, ("ann", "app")),
        ({USER: None}, ("ann", None)),
        ({CLIENT_ID: "app"}, (None, "app")),
        ({CLIENT_ID: None}, (None, "app")),
    ]
    quotas = {QuotaEntity.of(names): {str(PRODUCE): float(rank)} for rank, (names, _) in enumerate(order, 1)}
    for rank, (names, shared_by) in enumerate(order, 1):
        assert find_quota(quotas, PRODUCE, "ann", "app") == ClientQuota(rank, shared_by)
        del quotas[QuotaEntity.of(names)]
    assert find_quota(quotas, PRODUCE, "ann", "app") is None


def test_a_quota_of_another_kind_hides_none() -> None:
    quotas = {entity(user="ann"): {"consumer_byte_rate": 5.0}, entity(user=None): {"producer_byte_rate": 7.0}}
    assert find_quota(quotas, PRODUCE, "ann", "app") == ClientQuota(7, ("ann", None))


def test_an_empty_client_id_has_the_quota_of_those_without_their_own() -> None:
    """Or a client could escape the quota of its user's clients by having no id."""
    quotas = {
        entity(user="ann"): {"producer_byte_rate": 100.0},
        entity(user="ann", client_id=None): {"producer_byte_rate": 1.0},
    }
    assert find_quota(quotas, PRODUCE, "ann", "") == ClientQuota(1, ("ann", ""))
    quotas = {
        entity(user=None, client_id=None): {"producer_byte_rate": 2.0},
        entity(user=None): {PRODUCE: 9.0},
    }
    assert find_quota(quotas, PRODUCE, "", "") == ClientQuota(2, ("", ""))


def test_what_was_taken_too_much_must_come_back_first() -> None:
    bucket = TokenBucket(11)
    assert bucket.throttle_ms(2, 5) == 0
    bucket.take(30, 2, 5)
    assert bucket.throttle_ms(2, 5) == 4000, "22 were there, 8 too many were taken, 2 come back per second"
    assert not bucket.is_idle(4000)
    assert bucket.throttle_ms(2, 3005) == 1000
    assert bucket.throttle_ms(2, 4005) == 0
    bucket.take(1, 2, 4005)
    assert bucket.throttle_ms(2, 4005) == 500
    assert bucket.throttle_ms(2, 10**9) == 0
    bucket.take(22, 2, 10**9)
    assert bucket.throttle_ms(2, 10**9) == 0, "it never holds more"
    assert bucket.is_idle(2 * 10**9)


def test_quotas_of_addresses_are_for_connections_only() -> None:
    assert not problem_with_entity([("ip", "10.0.0.1")]) and not problem_with_entity([("ip", None)])
    for wrong in ([("ip", "localhost")], [("ip", "::1")], [("ip", "10.0.0.1"), ("user", "ann")]):
        assert problem_with_entity(wrong)
    assert not problem_with_quotas([("ip", None)], ["connection_creation_rate"])
    assert problem_with_quotas([("ip", None)], ["producer_byte_rate"])
    assert problem_with_quotas([("user", None)], ["connection_creation_rate"])
    assert problem_with("connection_creation_rate", 2.0**31) and problem_with("connection_creation_rate", 0.5)
    assert not problem_with("controller_mutation_rate", 0.5)


def test_filters() -> None:
    both, default, client = entity(user="ann", client_id="a"), entity(user=None), entity(client_id="a")
    everything = EntityFilter({}, frozenset(), False)
    assert all(map(everything.matches, (both, default, client)))
    assert [
        each
        for each in (both, default, client)
        if EntityFilter({USER: None}, frozenset(), True).matches(each)
    ] == [default]
    users = EntityFilter({}, frozenset({USER}), False)
    assert users.matches(both) and users.matches(default) and not users.matches(client)
    assert not EntityFilter({USER: "ann"}, frozenset(), True).matches(both)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("speed", 1.0),
        (PRODUCE, 0.0),
        (PRODUCE, -1.0),
        (PRODUCE, 1.5),
        (PRODUCE, float("nan")),
        (PRODUCE, float("inf")),
        (PRODUCE, 1e30),
    ],
)
def test_wrong_quotas(kind: str, value: float) -> None:
    assert problem_with(kind, value)


def test_quotas_are_kept(tmp_path: Path) -> None:
    def opened() -> ClientQuotas:
        quotas = ClientQuotas(QuotaSettings(), tmp_path / "quotas", Files(), lambda: 0)
        quotas.open()
        return quotas

    quotas = opened()
    quotas.change({entity(user="ann", client_id=None): {PRODUCE: 1e6, "request_percentage": 12.5}})
    quotas.change({entity(client_id="a"): {PRODUCE: 5.0}, entity(user="x"): {PRODUCE: None}})
    assert (
        opened().quotas
        == quotas.quotas
        == {
            entity(user="ann", client_id=None): {PRODUCE: 1e6, "request_percentage": 12.5},
            entity(client_id="a"): {PRODUCE: 5.0},
        }
    )
    quotas.change({entity(client_id="a"): {PRODUCE: None}})
    assert list(opened().quotas) == [entity(user="ann", client_id=None)]
    (tmp_path / "quotas").write_text('{"version": 1, "quotas": [[[["user", "a"]], {"speed": 1}]]}')
    with pytest.raises(KafkaStorageError, match="damaged"):
        opened()
