"""What members of groups ask for, and those who look after groups."""

from __future__ import annotations

from typing import Final

from tests.kafka.differential.steps import Steps
from tests.kafka.differential.values import Plain, Step

GROUPS: Final = ("g0", "g1")
_TOPIC_IDS_VERSION: Final = 10
MEMBERS: Final = "abc"
ORDERS: Final = (("range",), ("range", "roundrobin"), ("roundrobin", "range"))
NOBODY: Final = "nobody-00000000-0000-0000-0000-000000000000"


class GroupSteps(Steps):
    """Joins, syncs, heartbeats, leaving; commits; and the questions of tools."""

    def _member(self, group: str) -> str:
        return group + self._random.choice(MEMBERS[: self._random.choice((1, 2, 2, 3))])

    def _id_of(self, alias: str) -> str:
        return self._random.choices((f"$member:{alias}", NOBODY, ""), (18, 1, 1))[0]

    def _generation(self, group: str) -> Plain:
        delta = self._random.choices((0, -1, 1), (12, 1, 1))[0]
        return self._random.choices((f"$generation:{group}+{delta}", -1), (19, 1))[0]

    def _instance(self, alias: str) -> Plain:
        """Members called c are static, mostly."""
        if not alias.endswith("c"):
            return None
        return f"i-{alias}" if not self._rarely() else None

    def _group_work(self) -> None:
        self._one(self._round, self._round, self._round, self._join, self._sync, self._heartbeat, self._leave)

    def _round(self) -> None:
        """What members do in a rebalance: all join, then all sync."""
        group = self._random.choice(GROUPS)
        members = [group + letter for letter in MEMBERS[: self._random.choice((1, 2, 2, 3))]]
        for alias in members:
            self._join_as(group, alias, f"$member:{alias}" if self._rarely(5) else "")
            if not self._rarely(3):
                self._join_as(group, alias, f"$member:{alias}")
        for alias in members:
            self._sync_as(group, alias, f"$member:{alias}", f"$generation:{group}")

    def _join(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        self._join_as(group, alias, self._id_of(alias))

    def _join_as(self, group: str, alias: str, member_id: str) -> None:
        protocols = [
            {"name": name, "metadata": f"topics:{self._random.choice(('~t0', '~t1', '~t0,~t1'))}"}
            for name in self._assignors(group)
        ]
        if self._rarely():
            protocols = self._random.choice(([], [{"name": "another", "metadata": "x"}]))
        self._add(
            "JoinGroup",
            {
                "group_id": f"~{group}",
                "session_timeout_ms": self._random.choices((30_000, 40_000, 10, 9_999_999), (20, 3, 1, 1))[0],
                "rebalance_timeout_ms": 60_000,
                "member_id": member_id,
                "group_instance_id": self._instance(alias),
                "protocol_type": self._random.choices(("consumer", "connect", ""), (28, 1, 1))[0],
                "protocols": protocols,
                "reason": "why not",
            },
            on=alias,
            alias=alias,
            group=group,
        )

    def _assignors(self, group: str) -> tuple[str, ...]:
        """Members agree on what they like best, mostly: a tie, which each broker settles in its own way, ends
        the comparison."""
        best = self._best.setdefault(group, self._random.choice(ORDERS))
        return self._random.choices((best, best[:1], best[-1:], self._random.choice(ORDERS)), (6, 2, 2, 1))[0]

    def _sync(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        self._sync_as(group, alias, self._id_of(alias), self._generation(group))

    def _sync_as(self, group: str, alias: str, member_id: str, generation: Plain) -> None:
        self._add(
            "SyncGroup",
            {
                "group_id": f"~{group}",
                "generation_id": generation,
                "member_id": member_id,
                "group_instance_id": self._instance(alias),
                "protocol_type": self._random.choices(("consumer", None, "connect"), (10, 3, 1))[0],
                "protocol_name": self._random.choices(("range", None, "roundrobin"), (6, 6, 1))[0],
                "assignments": self._random.choices((f"$everyone:{group}", []), (9, 1))[0],
            },
            on=alias,
        )

    def _heartbeat(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        self._add(
            "Heartbeat",
            {
                "group_id": f"~{group}",
                "generation_id": self._generation(group),
                "member_id": self._id_of(alias),
                "group_instance_id": self._instance(alias),
            },
            on=alias,
        )

    def _leave(self) -> None:
        group = self._random.choice(GROUPS)
        leaving = [self._member(group) for _ in range(self._random.choice((1, 1, 2)))]
        self._add(
            "LeaveGroup",
            {
                "group_id": f"~{group}",
                "member_id": self._id_of(leaving[0]),
                "members": [
                    {"member_id": self._id_of(alias), "group_instance_id": self._instance(alias)}
                    for alias in leaving
                ],
            },
            on=leaving[0],
        )

    def _commit_work(self) -> None:
        self._one(
            self._commit,
            self._commit,
            self._commit,
            self._fetch_offsets,
            self._fetch_offsets,
            self._delete_offsets,
        )

    def _commit(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        outside = self._rarely(4)
        topic = self._topic()
        # A note that is too long comes with a partition that has none. (Alone, in a group that is not there
        # yet, it leaves Kafka with a group that some requests see and others do not.)
        note, also = "", list[Plain]()
        if self._rarely(2):
            note = "x*5000"
            also = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
        self._add(
            "OffsetCommit",
            {
                # Not "": all sequences would share that group, and what one commits decides later answers.
                "group_id": f"~{group}" if not self._rarely() else "~other",
                "generation_id_or_member_epoch": -1 if outside else self._generation(group),
                "member_id": "" if outside else self._id_of(alias),
                "group_instance_id": None if outside else self._instance(alias),
                "topics": [
                    {
                        "name": topic,
                        "topic_id": f"$topic:{topic}",
                        "partitions": [
                            {
                                "partition_index": self._partition(topic),
                                "committed_offset": self._random.choice((0, 5, 100, -1)),
                                "committed_leader_epoch": self._random.choice((-1, 0, 3)),
                                "committed_metadata": self._random.choice(("", "note", None, note)),
                            },
                            *also,
                        ],
                    }
                ],
            },
            on=alias,
        )

    def _fetch_offsets(self) -> None:
        group = self._random.choice((*GROUPS, *GROUPS, "other"))
        topic = self._topic()
        wanted: Plain = {"name": topic, "partition_indexes": [0, self._partition(topic)]}
        topics = None if self._rarely(3) else [wanted]
        version = self._random.randint(1, 10)
        if version >= _TOPIC_IDS_VERSION:
            wanted["topic_id"] = f"$topic:{topic}"
        if version < 2 and topics is None:
            version = 2
        fields = {
            "group_id": f"~{group}",
            "topics": topics,
            "groups": [{"group_id": f"~{group}", "topics": topics}],
            "require_stable": self._rarely(3),
        }
        self._steps.append(Step("OffsetFetch", version, fields))

    def _delete_offsets(self) -> None:
        topic = self._topic()
        self._add(
            "OffsetDelete",
            {
                "group_id": f"~{self._random.choice((*GROUPS, *GROUPS, 'other'))}",
                "topics": [{"name": topic, "partitions": [{"partition_index": self._partition(topic)}]}],
            },
        )

    def _group_admin(self) -> None:
        groups = [f"~{name}" for name in self._random.choice((("g0",), ("g1",), ("g0", "g1", "other")))]
        self._one(
            lambda: self._add(
                "DescribeGroups", {"groups": groups, "include_authorized_operations": self._rarely(3)}
            ),
            lambda: self._add(
                "ListGroups",
                {
                    "states_filter": self._random.choice(
                        ([], ["Stable"], ["Empty", "PreparingRebalance"], ["x"])
                    ),
                    "types_filter": self._random.choice(([], ["classic"], ["consumer"])),
                },
            ),
            lambda: self._add("DeleteGroups", {"groups_names": groups}),
        )
