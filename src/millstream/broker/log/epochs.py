"""Leader epochs (KIP-101): a number that grows whenever records that readers may have seen could be gone.

A consumer that read up to offset 100 in epoch 3 asks where epoch 3 ends. If the answer is 90, the ten records
it read last were lost, and it knows. Every batch carries the epoch it was appended in.
"""

from __future__ import annotations

from bisect import bisect_right

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1
_FORMAT = 0


class LeaderEpochs:
    """Where each epoch begins, oldest first. There is always at least one."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or [(0, 0)]

    @property
    def latest(self) -> int:
        return self.entries[-1][0]

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin a new epoch; epochs that got no records are dropped."""
        assert epoch > self.latest, f"epoch {epoch} after {self.latest}"
        self.entries = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries.append((epoch, start_offset))

    def cut_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the new start of the log."""
        starts = [start for _, start in self.entries]
        first = max(0, bisect_right(starts, start_offset) - 1)
        self.entries = self.entries[first:]

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest epoch up to the one asked for, and where it ends; (-1, -1) for an unknown one."""
        if epoch == self.latest:
            return epoch, end_offset
        if not 0 <= epoch < self.latest:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        following = bisect_right([known for known, _ in self.entries], epoch)
        known = self.entries[following - 1][0] if following else epoch
        return known, self.entries[following][1]

    def to_bytes(self) -> bytes:
        """Kafka's format of the file leader-epoch-checkpoint."""
        lines = [str(_FORMAT), str(len(self.entries)), *(f"{epoch} {start}" for epoch, start in self.entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LeaderEpochs | None:
        """Read the file; None when it is damaged."""
        try:
            version, count, *lines = data.decode("ascii").splitlines()
            entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
            if int(version) != _FORMAT or int(count) != len(entries) or not entries or data[-1:] != b"\n":
                return None
        except ValueError:
            return None
        return cls(entries) if entries == sorted(entries) else None
