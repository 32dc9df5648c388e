"""Leader epochs (KIP-101): a number that grows whenever records that readers saw may be lost.

A consumer that read up to offset 100 in epoch 3 asks where epoch 3 ends. If the answer is 90, it knows that
the last ten records it read were lost. Every batch has the epoch in which it was appended.
"""

from __future__ import annotations

from bisect import bisect_right

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1
_FORMAT = 0


class LeaderEpochs:
    """The start offset of each epoch, oldest first. There is always at least one."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or [(0, 0)]

    @property
    def latest(self) -> int:
        return self.entries[-1][0]

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin a new epoch; epochs without records are dropped."""
        assert epoch > self.latest, f"epoch {epoch} after {self.latest}"
        self.entries = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries.append((epoch, start_offset))

    def cut_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the new start of the log."""
        starts = [start for _, start in self.entries]
        first = max(0, bisect_right(starts, start_offset) - 1)
        self.entries = self.entries[first:]

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; (-1, -1) for an unknown one."""
        if epoch == self.latest:
            return epoch, end_offset
        if not 0 <= epoch < self.latest:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        following = bisect_right([known for known, _ in self.entries], epoch)
        known = self.entries[following - 1][0] if following else epoch
        return known, self.entries[following][1]

    def to_bytes(self) -> bytes:
        """Return the contents of Kafka's file leader-epoch-checkpoint."""
        lines = [str(_FORMAT), str(len(self.entries)), *(f"{epoch} {start}" for epoch, start in self.entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LeaderEpochs | None:
        """Read the file; None if it is damaged."""
        try:
            version, count, *lines = data.decode("ascii").splitlines()
            entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
            if int(version) != _FORMAT or int(count) != len(entries) or not entries or data[-1:] != b"\n":
                return None
        except ValueError:
            return None
        return cls(entries) if entries == sorted(entries) else None
