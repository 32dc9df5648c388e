"""Deadlines, against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.groups.state.timers import Timers

steps = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "pass"]), st.integers(0, 5), st.integers(0, 50)),
    max_size=200,
)


@given(steps)
def test_timers_do_what_a_dictionary_does(todo: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    now_ms = 0
    for what, key, amount in todo:
        if what == "set":
            timers.set(key, now_ms + amount)
            model[key] = now_ms + amount
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now_ms += amount
            due = sorted(timers.pop_due(now_ms))
            assert due == sorted(key for key, deadline in model.items() if deadline <= now_ms)
            model = {key: deadline for key, deadline in model.items() if deadline > now_ms}
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert all(key in timers for key in model)


def test_keys_come_in_the_order_of_their_deadlines() -> None:
    timers: Timers[str] = Timers()
    for name, deadline_ms in (("late", 30), ("early", 10), ("middle", 20)):
        timers.set(name, deadline_ms)
    timers.set("early", 25)
    assert list(timers.pop_due(100)) == ["middle", "early", "late"]


def test_deadlines_that_are_moved_all_the_time_do_not_pile_up() -> None:
    timers: Timers[int] = Timers()
    for now_ms in range(10_000):
        timers.set(now_ms % 10, now_ms + 1_000)
        timers.cancel(now_ms % 7)
        timers.set(now_ms % 7, now_ms + 500)
        timers.next_deadline_ms()
    assert len(timers._heap) < 200
