"""ACL decisions beside Apache Kafka's own StandardAuthorizer: thousands of generated questions."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import JARS, fetch_jars
from millstream.broker.access.authorizer import Authorizer
from millstream.broker.connections.limits import address_as_in_java
from millstream.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.kafka.not_run import not_run
from tests.kafka.server import NAME, what_is_missing

PROGRAM = Path(__file__).parent / "acls" / "AclGrid.java"
SEED = 20
WORLDS, QUESTIONS = 200, 60
PRINCIPALS = ("User:ann", "User:bob", "User:*", "User:a,b:c", "Group:dev")
ASKERS = tuple(principal for principal in PRINCIPALS if principal != "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "::1")
NAMES = ("*", "a", "ab", "abc", "abcd", "b", "hardcode", "hard", "über", "kafka-cluster")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
OPERATIONS = tuple(operation for operation in Operation if operation > Operation.ANY)


@dataclass
class World:
    """Rules, and who is above them."""

    acls: list[Acl]
    super_users: tuple[str, ...]
    allow_if_no_acl: bool
    questions: list[tuple[str, ...]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield "\t".join(("new", ";".join(self.super_users), str(self.allow_if_no_acl).lower()))
        for acl in self.acls:
            words = (acl.resource_type.name, acl.name, acl.pattern.name, acl.principal, acl.host)
            yield "\t".join(("acl", *words, acl.operation.name, acl.permission.name))
        yield from map("\t".join, self.questions)

    def answers(self) -> Iterator[str]:
        authorizer = Authorizer(self.acls, self.super_users, allow_if_no_acl=self.allow_if_no_acl)
        for kind, principal, host, operation, resource_type, *name in self.questions:
            asked = (principal, _java(host), Operation[operation], ResourceType[resource_type])
            allowed = authorizer.allows(*asked, *name) if kind == "ask" else authorizer.allows_any(*asked)
            yield "ALLOWED" if allowed else "DENIED"


def _java(host: str) -> str:
    """Java writes addresses of IPv6 in full, and ACLs must name them so."""
    return address_as_in_java(host)


def make_world(rng: random.Random) -> World:
    acls = {
        Acl(
            rng.choice(TYPES),
            rng.choice(NAMES),
            rng.choice(PRINCIPALS),
            rng.choice(OPERATIONS),
            rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
            rng.choice(("*", *map(_java, HOSTS))),
            rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        )
        for _ in range(rng.choice((0, 1, 3, 10, 40)))
    }
    world = World(sorted(acls), rng.choice(((), ("User:bob",))), rng.random() < 0.3)
    for _ in range(QUESTIONS):
        asked = (rng.choice(ASKERS), rng.choice(HOSTS), rng.choice(OPERATIONS[1:]).name)
        resource_type = rng.choice(TYPES).name
        if rng.random() < 0.2:
            world.questions.append(("any", *asked, resource_type))
        else:
            world.questions.append(("ask", *asked, resource_type, rng.choice(NAMES)))
    return world


def test_every_decision_is_kafkas() -> None:
    if missing := what_is_missing():
        not_run(NAME, missing)
    if shutil.which("javac") is None:
        not_run(f"ACL decisions of {NAME}", "javac is not on the PATH")
    fetch_jars()
    rng = random.Random(SEED)
    worlds = [make_world(rng) for _ in range(WORLDS)]
    given = "\n".join(line for world in worlds for line in world.lines())
    ran = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(PROGRAM)],
        input=given.encode(),
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    decided = ran.stdout.decode().split()
    questions = [(world, question) for world in worlds for question in world.questions]
    ours = [answer for world in worlds for answer in world.answers()]
    assert len(decided) == len(questions) == len(ours) == WORLDS * QUESTIONS
    differing = [
        (question, kafkas, world.acls, world.allow_if_no_acl)
        for (world, question), kafkas, own in zip(questions, decided, ours, strict=True)
        if kafkas != own
    ]
    assert not differing, f"seed {SEED}: {len(differing)} of {len(ours)} differ, such as {differing[0]}"
    assert 0.1 < decided.count("ALLOWED") / len(decided) < 0.9, "both answers must be common"
