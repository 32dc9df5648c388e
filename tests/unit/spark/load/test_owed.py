"""Resets, strangers' commits and retention in any order: what a load was ever to hold is in its table, is
recorded as lost, or is still to come. Nothing is passed in silence.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.starts import Refusal, Rules, Situation, Start, decide
from millstream.spark.sinks.base import Advance, Progress, Standing

WHERE = TopicPartition("orders", 0)
END = 30
Event = tuple[str, int, int]
"""What happens, at which offset, and how many records the next cycle loads."""
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["reset", "stranger", "retention"]), st.integers(0, END), st.integers(0, END // 3)
    ),
    min_size=3,
    max_size=12,
)


class Loading:
    """One partition, its log and its table."""

    def __init__(self, starting: str, *, accepting: bool) -> None:
        self._rules = Rules("g", "fake:sink", starting, fail_on_data_loss=not accepting)
        self.log_start = 0
        self.log_end = END // 2
        self.committed: OffsetAndMetadata | None = None
        self.progress: Progress | None = None
        self.loaded: set[int] = set()
        self.recorded: set[int] = set()
        self.told_though_loaded: set[int] = set()
        self.began = END
        """The least offset at which it was ever to begin."""

    def happens(self, what: str, offset: int, size: int) -> None:
        """Something happens, some records are written, and the load has a cycle."""
        offset = min(offset, self.log_end)
        if what == "retention":
            self.log_start = max(self.log_start, offset)
        else:
            self.committed = OffsetAndMetadata(offset, RESET_METADATA if what == "reset" else "")
        self.log_end = min(END, self.log_end + size // 3)
        self._cycle(size)

    def _cycle(self, size: int) -> None:
        """Plan, anchor, load so many, unless it is refused."""
        found = self._decide()
        if isinstance(found, Refusal):
            self.committed = None  # somebody repents; what retention took stays refused
            return
        if found.anchors:
            lost = {offset for each in found.lost for offset in range(each.start, each.end)}
            self.told_though_loaded |= lost & self.loaded
            self.recorded |= lost
            self.began = min(self.began, found.offset)
            self._commit(found.offset, found.offset, min(lost, default=None))
        start = found.offset
        end = min(self.log_end, start + size)
        self.loaded |= set(range(max(start, self.log_start), end))
        self._commit(start, end, None)
        self.committed = None

    def _decide(self) -> Start | Refusal:
        standing = Standing(self.progress, self.progress)
        log = (self.log_start, self.log_end)
        return decide(Situation(WHERE, standing, self.committed, "id1", *log), self._rules)

    def _commit(self, start: int, end: int, lost_from: int | None) -> None:
        step = Advance(*WHERE, "id1", start, end, Standing(self.progress, self.progress), lost_from)
        self.progress = step.after(self.progress)

    def assert_nothing_passed_in_silence(self) -> None:
        if self.progress is not None:
            passed = set(range(self.began, self.progress.next_offset))
            assert passed <= self.loaded | self.recorded, (self.progress, passed)


@settings(max_examples=200)
@given(st.sampled_from(["earliest", "latest"]), st.booleans(), EVENTS)
def test_nothing_is_passed_in_silence(starting: str, accepting: bool, events: list[Event]) -> None:
    load = Loading(starting, accepting=accepting)
    for event in events:
        load.happens(*event)
        load.assert_nothing_passed_in_silence()


@settings(max_examples=200)
@given(st.sampled_from(["earliest", "latest"]), EVENTS)
def test_nothing_is_told_that_is_there(starting: str, events: list[Event]) -> None:
    """As long as nobody rewinds a load that was rewound to before its beginning and has not come back yet."""
    load = Loading(starting, accepting=True)
    for what, offset, size in events:
        progress = load.progress
        if progress is not None and progress.has_gap and what != "retention":
            offset = max(offset, progress.next_offset)
        load.happens(what, offset, size)
    assert not load.told_though_loaded
