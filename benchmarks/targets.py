"""What reading has to reach, as ratios of figures of one run; and, where it does not, what limits it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.peers import BrokerProcess
from benchmarks.report import Section, table

ARROW, POLL = "millstream poll_arrow", "millstream poll"
PEER, LIMIT = "confluent-kafka consume, tuned", "raw limit"
OURS = "millstream"
NO_PYTHON = ("raw limit", "Java ConsumerPerformance")


class Figures(NamedTuple):
    """Of one reader: records a second, CPU seconds for a million of them, and megabytes at its peak."""

    rate: float
    cpu: float
    peak_mb: float


class Target(NamedTuple):
    """A ratio that is to be reached, or that is not to be exceeded."""

    what: str
    measured: float
    wanted: float
    at_most: bool = False

    @property
    def is_met(self) -> bool:
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted

    @property
    def verdict(self) -> str:
        return "met" if self.is_met else f"**missed by {abs(self.measured / self.wanted - 1):.0%}**"


def targets(figures: Mapping[str, Figures]) -> Iterator[Target]:
    """Each target with what was measured for it."""
    peer = figures[PEER]
    yield Target(f"{ARROW}, rate beside {PEER}", figures[ARROW].rate / peer.rate, 5.0)
    yield Target(f"{ARROW}, rate beside the {LIMIT}", figures[ARROW].rate / figures[LIMIT].rate, 0.5)
    yield Target(f"{POLL}, rate beside {PEER}", figures[POLL].rate / peer.rate, 1.2)
    peers = {name: each.cpu for name, each in figures.items() if OURS not in name and name not in NO_PYTHON}
    thriftiest = min(peers, key=lambda name: peers[name])
    for name in (ARROW, POLL):
        cpu = figures[name].cpu / peers[thriftiest]
        yield Target(f"{name}, CPU beside {thriftiest}", cpu, 1.0, at_most=True)
        memory = figures[name].peak_mb / peer.peak_mb
        yield Target(f"{name}, peak memory beside {PEER}", memory, 1.0, at_most=True)


_SIGNS = {False: "at least", True: "at most"}


def section(figures: Mapping[str, Figures], profiled: Mapping[str, Any]) -> Section:
    """Targets and verdicts, and the profile that says what limits poll_arrow."""
    every = list(targets(figures))
    rows = [
        (each.what, f"{_SIGNS[each.at_most]} {each.wanted:g}", f"{each.measured:.2f}", each.verdict)
        for each in every
    ]
    limits = "" if all(each.is_met for each in every) else " This is what limits those that were missed:"
    return Section(
        "Clients: targets for reading",
        "Ratios of the table above.\n\n"
        + table(("", "wanted", "measured", ""), rows)
        + f"\n\nWhere poll_arrow's time goes.{limits}\n\n"
        + _shown(profiled),
    )


def _shown(profiled: Mapping[str, Any]) -> str:
    seconds = profiled["seconds"]
    rows = [(name, f"{value:.3f} s") for name, value in seconds.items()]
    busy = sum(seconds[name] for name in ("the user's thread", "the I/O thread", "the broker"))
    rows.append(("cores that client and broker keep busy", f"{busy / seconds['wall']:.2f}"))
    functions = [(f"`{name}`", f"{part:.0%}") for name, part in profiled["functions"]]
    return (
        table(("for 1 M records", ""), rows)
        + "\n\nThe functions that take most processor time themselves, in both threads, under cProfile, "
        "which makes Python look slower than it is:\n\n" + table(("function", "part"), functions)
    )


def profile(broker: BrokerProcess, topic: str, records: int) -> dict[str, Any]:
    """Seconds and functions of poll_arrow, from a process of its own."""
    assert broker.process is not None, "it is running"
    arguments = (broker.bootstrap_servers, topic, str(records), str(broker.process.pid))
    command = [sys.executable, "-m", "benchmarks.profiling", *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    found: dict[str, Any] = json.loads(output)
    return found
