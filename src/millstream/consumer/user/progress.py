"""How far the user has come: each partition's position, less what an iteration has still to hand out."""

from __future__ import annotations

from millstream.consumer.fetching.positions import Positions
from millstream.consumer.user.iteration import Iteration
from millstream.model import OffsetAndMetadata, TopicPartition


class Progress:
    """Positions as the user sees them. To be asked with the consumer's lock held."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.iteration = Iteration()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was handed out, as offsets to commit."""
        return self.iteration.correct(self._positions.consumed())

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that is handed out; None while it is not known."""
        offset = self._positions.position(partition)
        waiting = self.iteration.first_offsets().get(partition)
        return offset if offset is None or waiting is None else min(offset, waiting[0])

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records are still to be handed out; None while that is not known."""
        behind = self._positions.lag(partition)
        offset = self._positions.position(partition)
        waiting = self.iteration.first_offsets().get(partition)
        if behind is None or offset is None or waiting is None:
            return behind
        return behind + offset - waiting[0]

    def give_back(self) -> None:
        """Records that an iteration has fetched and not handed out are read again."""
        if not self.iteration:
            return
        for partition, (offset, epoch) in self.iteration.first_offsets().items():
            state = self._positions.get(partition)
            if state is not None and state.position is not None and state.position.offset > offset:
                self._positions.seek(partition, OffsetAndMetadata(offset, "", epoch))
        self.iteration.stop()
