"""The arithmetic of the sticky assignors: how many partitions of which kind each member holds.

Members are numbers from 0, and so are *blocks*: a block is a set of partitions that the same members may
have, from the same racks, so that only their number counts. ``balance`` finds the counts that are best in
this order:

1. the loads (partitions per member) are as even as the subscriptions permit: no chain of moves, from a member
   to a second to a third, can even them further;
2. as few partitions as possible are held by a member in a rack without a replica;
3. as few partitions as possible leave their previous owner.

How. Think of partitions as flowing from a storeroom, and from members with many, to members with few: a path
runs member, block, member, block, member, where each member hands one partition of the block on to the next.
Each path taken is a cheapest one between its two ends, where a partition that leaves its owner costs 1, one
that returns earns 1, and one that changes racks costs or earns more than all of these together. It is a
theorem of minimum-cost flows that the counts then always are the cheapest of all that have the same loads.
And when no path leads from a member to one with two fewer, the loads are as even as can be. What remains is
to choose who gets the odd ones: paths between loads that differ by one are taken while they earn something.

``even_out`` finds these paths for many members at once. It picks a threshold near the average and lets
partitions flow from members above it to members below it. When that stops, either one of the two sides is
empty, or the members that can still be reached from above form a part that need never give anything to the
rest: the two are then settled apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

_UNREACHED: Final = 1 << 62
_SHUT: Final = -_UNREACHED
"""The label of a member that does not take part: no path is shorter, so none enters."""


@dataclass(frozen=True, slots=True)
class PartitionBlock:
    """Partitions of which only the number matters. ``far`` members may have them, from another rack."""

    size: int
    near: Sequence[int]
    far: frozenset[int] = frozenset()


def balance(blocks: Sequence[PartitionBlock], owned: Sequence[dict[int, int]]) -> list[dict[int, int]]:
    """Return how many partitions of each block each member holds.

    ``owned[member][block]`` is how many the member had before, and may still have.
    """
    flow = _Flow(blocks, owned)
    flow.even_out()
    return flow.held[:-1]


class _Flow:
    """The counts as they change. The last member is the storeroom, which holds unassigned partitions."""

    def __init__(self, blocks: Sequence[PartitionBlock], owned: Sequence[dict[int, int]]) -> None:
        self.store = len(owned)
        self.owned = [*owned, {}]
        # Previous owners keep what is near; this is the cheapest of all counts with these loads.
        self.held: list[dict[int, int]] = [
            {block: count for block, count in counts.items() if member not in blocks[block].far}
            for member, counts in enumerate(owned)
        ]
        self.held.append(self._unassigned(blocks))
        self.load = [sum(counts.values()) for counts in self.held]
        self.near = [[*block.near, self.store] for block in blocks]
        self.far = [block.far for block in blocks]
        self.takers = [[*block.near, self.store, *sorted(block.far)] for block in blocks]
        self.missing: list[set[int]] = [set() for _ in blocks]
        for member, counts in enumerate(owned):
            for block in counts.keys() - self.held[member].keys():
                self.missing[block].add(member)
        # Costs are compared first by racks, then by moves, then by the length of the path: one integer.
        # A step is more than any path is long, and a change of racks more than all partitions can move.
        self._step = 2 * (len(owned) + len(blocks)) + 4
        self.across = self._step * (sum(block.size for block in blocks) + 1)

    def _unassigned(self, blocks: Sequence[PartitionBlock]) -> dict[int, int]:
        left = {number: block.size for number, block in enumerate(blocks)}
        for counts in self.held:
            for block, count in counts.items():
                left[block] -= count
        assert min(left.values(), default=0) >= 0, "more partitions owned than there are"
        return {block: count for block, count in left.items() if count}

    def even_out(self) -> None:
        """Settle the members as one part, then the parts that it falls into, until each is even."""
        parts = [list(range(self.store + 1))] if self.store else []
        while parts:
            part = parts.pop()
            threshold = self._threshold(part)
            if threshold is None:
                self._choose_the_odd_ones(part)
                continue
            reached = self._run(part, threshold, threshold, _UNREACHED)
            if reached is None:
                parts.append(part)
            else:
                parts += [sorted(reached), [member for member in part if member not in reached]]

    def _threshold(self, part: Sequence[int]) -> int | None:
        """A load above the least and, unless the storeroom must be emptied, below the greatest; or None."""
        loads = [self.load[member] for member in part if member != self.store]
        stored = self.load[self.store] if part[-1] == self.store else 0
        low, high = min(loads), max(loads)
        if not stored and high - low <= 1:
            return None
        threshold = max(low + 1, (sum(loads) + stored) // len(loads))
        return threshold if stored else min(threshold, high - 1)

    def _choose_the_odd_ones(self, part: Sequence[int]) -> None:
        """Where loads differ by one, give the extra partition to members that then keep more of theirs."""
        if any(self.missing) or any(self.far):
            low = min(self.load[member] for member in part if member != self.store)
            self._run(part, low, low + 1, 0)

    def _run(self, part: Sequence[int], keep: int, fill: int, limit: int) -> set[int] | None:
        """Let partitions flow from members with more than ``keep`` to members with less than ``fill``.

        Only paths that cost less than ``limit`` are taken. Returns the members that can still be reached when
        no path is left; None when no member has more, or none has less.
        """
        while True:
            sources = [member for member in part if self.spare(member, keep) > 0]
            targets = [member for member in part if self.load[member] < fill and member != self.store]
            if not sources or not targets:
                return None
            search = _PathSearch(self, part, sources)
            if not any(search.labels[target] < limit for target in targets):
                return {member for member in part if search.labels[member] < _UNREACHED}
            search.push(sources, keep, fill, limit)

    def spare(self, member: int, keep: int) -> int:
        """How many the member can do without; all, in the case of the storeroom."""
        return self.load[member] - (keep if member != self.store else 0)

    # ---- what one more or one less partition of a block costs ----

    def cost_to_give(self, member: int, block: int) -> int:
        """The label's increase from a member to a block that it hands a partition of on."""
        leaves_owner = self.held[member][block] <= self.owned[member].get(block, 0)
        cost = 1 + (self._step if leaves_owner else 0)
        return cost - self.across if member in self.far[block] else cost

    def cost_to_take(self, member: int, block: int) -> int:
        """The label's increase from a block to a member that takes a partition of it."""
        cost = 1 - (self._step if member in self.missing[block] else 0)
        return cost + self.across if member in self.far[block] else cost

    def room_to_give(self, member: int, block: int) -> int:
        """How many can be handed on at the present cost."""
        held, owned = self.held[member][block], self.owned[member].get(block, 0)
        return held - owned if held > owned else held

    def room_to_take(self, member: int, block: int) -> int:
        """How many can be taken at the present cost."""
        if member in self.missing[block]:
            return self.owned[member][block] - self.held[member].get(block, 0)
        return _UNREACHED

    def change(self, member: int, block: int, amount: int) -> None:
        """Add partitions of a block to what a member holds."""
        held = self.held[member]
        count = held.get(block, 0) + amount
        if count:
            held[block] = count
        else:
            del held[block]
        self.load[member] += amount
        if count < self.owned[member].get(block, 0):
            self.missing[block].add(member)
        else:
            self.missing[block].discard(member)


class _PathSearch:
    """The cheapest paths from some members to all others, and the flow along them.

    Nodes are members, and after them blocks. A label is the cost of the cheapest path to a node. An arc is
    tight when it is part of such a path; every step costs a little, so tight arcs form no circle.
    """

    def __init__(self, flow: _Flow, part: Iterable[int], sources: Sequence[int]) -> None:
        self._flow = flow
        self._blocks_from = flow.store + 1
        self.labels = [_SHUT] * self._blocks_from + [_UNREACHED] * len(flow.takers)
        for member in part:
            self.labels[member] = _UNREACHED
        for source in sources:
            self.labels[source] = 0
        self._heap = [(0, source) for source in sources]
        self._explore()
        # A node's arcs, and how many of them are used up: they stay so until the next search.
        self._arcs: dict[int, Sequence[int]] = {}
        self._used = [0] * len(self.labels)

    def _explore(self) -> None:
        """Settle labels, the lowest first. Some arcs earn: a label that sinks again is settled again."""
        heap, labels = self._heap, self.labels
        while heap:
            label, node = heappop(heap)
            if label != labels[node]:
                continue
            if node < self._blocks_from:
                self._leave_member(node, label)
            else:
                self._leave_block(node - self._blocks_from, label)

    def _leave_member(self, member: int, label: int) -> None:
        for block in self._flow.held[member]:
            self._reach(self._blocks_from + block, label + self._flow.cost_to_give(member, block))

    def _leave_block(self, block: int, label: int) -> None:
        flow, labels, heap = self._flow, self.labels, self._heap
        for members, cost in ((flow.near[block], 1), (flow.far[block], 1 + flow.across)):
            reached = label + cost
            for member in members:
                if reached < labels[member]:  # what _reach does, without the call: the innermost loop
                    labels[member] = reached
                    heappush(heap, (reached, member))
        for member in flow.missing[block]:
            self._reach(member, label + flow.cost_to_take(member, block))

    def _reach(self, node: int, label: int) -> None:
        if label < self.labels[node]:
            self.labels[node] = label
            heappush(self._heap, (label, node))

    # ---- the flow ----

    def push(self, sources: Sequence[int], keep: int, fill: int, limit: int) -> None:
        """Send partitions along tight arcs until every path from source to target is interrupted."""
        flow = self._flow
        for source in sources:
            while (spare := flow.spare(source, keep)) > 0:
                path = self._find_path(source, fill, limit)
                if not path:
                    break
                self._send(path, min(spare, fill - flow.load[path[-1]]))

    def _find_path(self, source: int, fill: int, limit: int) -> list[int]:
        """Member, block, member and so on to one that has less than ``fill``; empty when there is none."""
        path = [source]
        while path:
            node = path[-1]
            if node < self._flow.store and self._flow.load[node] < fill and self.labels[node] < limit:
                return path
            following = self._follow(node)
            if following is not None:
                path.append(following)
            else:
                path.pop()
                if path:
                    self._used[path[-1]] += 1
        return []

    def _follow(self, node: int) -> int | None:
        """The next node on a tight arc from this one."""
        arcs = self._arcs.get(node)
        if arcs is None:
            arcs = self._arcs[node] = self._list_arcs(node)
        for position in range(self._used[node], len(arcs)):
            if self._is_tight(node, arcs[position]):
                self._used[node] = position
                return arcs[position]
        self._used[node] = len(arcs)
        return None

    def _list_arcs(self, node: int) -> Sequence[int]:
        if node < self._blocks_from:
            return [self._blocks_from + block for block in self._flow.held[node]]
        return self._flow.takers[node - self._blocks_from]

    def _is_tight(self, node: int, following: int) -> bool:
        cost = self.labels[following] - self.labels[node]
        if node >= self._blocks_from:
            return cost == self._flow.cost_to_take(following, node - self._blocks_from)
        block = following - self._blocks_from
        return block in self._flow.held[node] and cost == self._flow.cost_to_give(node, block)

    def _send(self, path: Sequence[int], amount: int) -> None:
        """Send at most ``limit`` partitions along the path: as many as pass at its current cost."""
        flow = self._flow
        hops = [
            (path[start], path[start + 1] - self._blocks_from, path[start + 2])
            for start in range(0, len(path) - 1, 2)
        ]
        for giver, block, taker in hops:
            amount = min(amount, flow.room_to_give(giver, block), flow.room_to_take(taker, block))
        for giver, block, taker in hops:
            flow.change(giver, block, -amount)
            flow.change(taker, block, amount)
