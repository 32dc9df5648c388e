"""The futures of records: their own outcome, from the batch's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MillstreamError,
    MillstreamTimeoutError,
    NetworkError,
)
from millstream.model import RecordMetadata
from millstream.producer.arrow_delivery import ArrowDelivery
from millstream.producer.core.times import Times
from millstream.producer.futures import (
    Delivery,
    DeliveryLock,
    RecordFuture,
    run_callback,
)
from tests.waiting import SECONDS, until


@pytest.fixture
def delivery() -> Delivery:
    return Delivery(DeliveryLock(lambda: None), "t", 3, times_of(100, 200, 300, 400))


def times_of(*stamps: int) -> Times:
    times = Times()
    for row, stamp in enumerate(stamps):
        times.change(row, stamp)
    return times


def futures_of(delivery: Delivery) -> list[RecordFuture]:
    return [RecordFuture.of(delivery, index) for index in range(len(delivery.times.rows))]


def finish(delivery: Delivery, offset: int = -1, error: MillstreamError | None = None, **more: Any) -> None:
    with delivery.shared.lock:
        callbacks = delivery.finish(offset, more.get("append_time", -1), error, more.get("record_errors"))
        delivery.shared.notify()
    for future, callback in callbacks:
        run_callback(future, callback)


def test_each_record_has_its_own_place(delivery: Delivery) -> None:
    futures = futures_of(delivery)
    assert not any(future.done() for future in futures)
    assert "pending" in repr(futures[0])
    finish(delivery, 10)
    assert [future.result(0) for future in futures] == [
        RecordMetadata("t", 3, 10 + index, 100 * (index + 1)) for index in range(4)
    ]
    assert futures[0].exception(0) is None
    assert "offset=10" in repr(futures[0])


def test_the_brokers_time_wins_and_offsets_may_be_unknown(delivery: Delivery) -> None:
    first, *_ = futures_of(delivery)
    finish(delivery, append_time=999)
    assert first.result(0) == RecordMetadata("t", 3, -1, 999)


def test_errors(delivery: Delivery) -> None:
    first, *_ = futures_of(delivery)
    error = NetworkError("gone")
    finish(delivery, error=error)
    assert first.exception(0) is error
    for _ in range(2):
        with pytest.raises(NetworkError, match="gone"):
            first.result(0)


def test_errors_of_single_records(delivery: Delivery) -> None:
    futures = futures_of(delivery)
    finish(delivery, error=InvalidTimestampError("t-3"), record_errors={1: "too far from now"})
    assert isinstance(futures[1].exception(), InvalidTimestampError)
    assert "too far from now" in str(futures[1].exception())
    assert isinstance(futures[0].exception(), InvalidRecordError)
    assert "other records of its batch" in str(futures[0].exception())


def test_waiting_ends_in_time_or_with_the_outcome(delivery: Delivery) -> None:
    first, *_ = futures_of(delivery)
    with pytest.raises(MillstreamTimeoutError):
        first.result(0.01)
    with pytest.raises(TimeoutError):
        first.exception(0)
    timer = threading.Timer(0.05, finish, (delivery, 5))
    timer.start()
    assert first.result(SECONDS).offset == 5
    timer.join()


def test_callbacks_come_once_and_one_that_fails_harms_nobody(
    delivery: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = futures_of(delivery)
    seen: list[Any] = []

    def bad(future: object) -> None:
        raise RuntimeError("a bug in a callback")

    first.add_done_callback(bad)
    first.add_done_callback(seen.append)
    finish(delivery, 0)
    second.add_done_callback(seen.append)
    assert seen == [first, second]
    assert "a bug in a callback" in caplog.text


def test_cannot_be_cancelled(delivery: Delivery) -> None:
    first, *_ = futures_of(delivery)
    assert not first.cancel()
    assert not first.cancelled()
    assert not first.running()


@pytest.fixture
def finishing(delivery: Delivery) -> Iterator[threading.Timer]:
    timer = threading.Timer(0.05, finish, (delivery, 7))
    timer.start()
    yield timer
    timer.join()


def test_concurrent_futures_wait(delivery: Delivery, finishing: threading.Timer) -> None:
    futures = futures_of(delivery)
    done, pending = concurrent.futures.wait(futures, timeout=SECONDS)
    assert (done, pending) == (set(futures), set())
    assert concurrent.futures.wait(futures, timeout=0).done == set(futures)


def test_concurrent_futures_first_exception(delivery: Delivery) -> None:
    other = Delivery(delivery.shared, "t", 0, times_of(0))
    timer = threading.Timer(0.05, finish, (other,), {"error": NetworkError("gone")})
    timer.start()
    futures = [*futures_of(delivery), *futures_of(other)]
    done, pending = concurrent.futures.wait(futures, SECONDS, concurrent.futures.FIRST_EXCEPTION)
    timer.join()
    assert (len(done), len(pending)) == (1, 4)


def test_as_completed(delivery: Delivery, finishing: threading.Timer) -> None:
    futures = futures_of(delivery)
    assert set(concurrent.futures.as_completed(futures, timeout=SECONDS)) == set(futures)


def test_asyncio(delivery: Delivery, finishing: threading.Timer) -> None:
    async def offsets() -> list[int]:
        records = await asyncio.gather(*(asyncio.wrap_future(future) for future in futures_of(delivery)))
        return [record.offset for record in records]

    assert asyncio.run(offsets()) == [7, 8, 9, 10]


def test_split_batches_divide_their_records(delivery: Delivery) -> None:
    futures = futures_of(delivery)
    seen: list[int] = []
    for index, future in enumerate(futures):
        future.add_done_callback(lambda _, index=index: seen.append(index))  # type: ignore[misc]
    waiter = threading.Thread(target=concurrent.futures.wait, args=(futures, SECONDS))
    waiter.start()
    until(lambda: delivery.watched, "somebody waits")
    with delivery.shared.lock:
        first, second = delivery.split(2)
        second_a, second_b = second.split(1)
    assert not delivery.is_settled
    finish(second_b, 50)
    assert [future.done() for future in futures] == [False, False, False, True]
    finish(first, 10)
    assert not delivery.is_settled
    finish(second_a, error=NetworkError("gone"))
    assert delivery.is_settled
    waiter.join(SECONDS)
    assert not waiter.is_alive()
    assert [futures[index].result(0).offset for index in (0, 1, 3)] == [10, 11, 50]
    assert [futures[index].result(0).timestamp for index in (0, 1, 3)] == [100, 200, 400]
    assert isinstance(futures[2].exception(0), NetworkError)
    assert seen == [3, 0, 1, 2]


# -- the rows of send_arrow


def test_rows_have_one_outcome_over_all_their_batches(delivery: Delivery) -> None:
    other = Delivery(delivery.shared, "t", 1, Times())
    rows, also = ArrowDelivery(5), ArrowDelivery(2)
    delivery.add_share(rows, 0, 3)
    delivery.add_share(also, 3, 2)
    other.add_share(rows, 0, 2)
    finish(delivery, 10)
    assert also.future.result(0) == 2
    assert not rows.future.done()
    finish(other, 0)
    assert rows.future.result(0) == 5
    assert rows.future.written == {delivery.partition: 3, 1: 2} and rows.future.failed == {}


def test_the_first_error_of_the_rows_is_theirs(delivery: Delivery) -> None:
    rows, innocent = ArrowDelivery(4), ArrowDelivery(1)
    other = Delivery(delivery.shared, "t", 1, Times())
    delivery.add_share(rows, 0, 3)
    delivery.add_share(innocent, 3, 1)
    other.add_share(rows, 0, 1)
    finish(delivery, error=InvalidTimestampError("t-3"), record_errors={2: "too far from now"})
    finish(other, 5)
    assert isinstance(rows.future.exception(0), InvalidTimestampError)
    assert "too far from now" in str(rows.future.exception(0))
    assert isinstance(innocent.future.exception(0), InvalidRecordError)
    assert rows.future.written == {1: 1}
    assert rows.future.failed == {delivery.partition: (3, rows.future.exception(0))}


@pytest.mark.parametrize("middle", [1, 2, 3, 4])
def test_rows_of_a_batch_that_is_split(delivery: Delivery, middle: int) -> None:
    rows, also = ArrowDelivery(2), ArrowDelivery(3)
    delivery.add_share(rows, 0, 2)
    delivery.add_share(also, 2, 3)
    with delivery.shared.lock:
        first, second = delivery.split(middle)
    shares = [share for part in (first, second) for share in part.shares or ()]
    assert [one.count for one in shares if one.outcome is rows] == ([2] if middle > 1 else [1, 1])
    assert sum(one.count for one in shares if one.outcome is also) == 3
    places = [range(one.first, one.first + one.count) for one in second.shares or ()]
    assert [place for part in places for place in part] == list(range(5 - middle))
    finish(first, 0)
    finish(second, error=NetworkError("gone"))
    assert also.future.exception(0) is not None
    assert (rows.future.exception(0) is None) == (middle >= 2)


def test_no_rows_are_done_at_once() -> None:
    assert ArrowDelivery(0).future.result(0) == 0


def test_rows_that_were_sent_cannot_be_cancelled() -> None:
    """As the future of a record cannot: whoever gives up waiting does not disturb the I/O thread."""
    rows = ArrowDelivery(2)
    assert not rows.future.cancel()
    rows.settle(0, 2, None)
    assert rows.future.result(SECONDS) == 2
    assert not ArrowDelivery(0).future.cancel()


async def _give_up(future: concurrent.futures.Future[int]) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.wrap_future(future), 0.01)


def test_a_coroutine_that_gives_up_leaves_the_rows_alone() -> None:
    rows = ArrowDelivery(1)
    asyncio.run(_give_up(rows.future))
    rows.settle(0, 1, None)
    assert rows.future.result(SECONDS) == 1
