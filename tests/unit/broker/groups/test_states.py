"""The table of states."""

from __future__ import annotations

import pytest

from docs.generate import group_states
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.states import ALLOWED, MEANING, TRANSITIONS, GroupState


def test_every_state_can_be_reached_and_all_end_in_dead() -> None:
    reached = {GroupState.EMPTY}
    while more := {after for state in reached for after in ALLOWED[state]} - reached:
        reached |= more
    assert reached == set(GroupState) == set(MEANING)
    assert ALLOWED[GroupState.DEAD] == frozenset()
    assert all(GroupState.DEAD in ALLOWED[state] for state in GroupState if state is not GroupState.DEAD)


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_group_goes_only_where_the_table_lets_it(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g")
    group.state = before
    if after in ALLOWED[before]:
        group.enter(after, 7)
        assert (group.state, group.state_since_ms) == (after, 7)
    else:
        with pytest.raises(AssertionError):
            group.enter(after, 7)


def test_the_table_can_be_drawn() -> None:
    drawing = group_states()
    assert drawing.startswith("```mermaid\nstateDiagram-v2\n")
    for before, after in TRANSITIONS:
        assert f"    {before.value} --> {after.value}: " in drawing
