"""The steps that set up a new connection before it carries requests."""

from __future__ import annotations

from typing import Protocol

from millstream.wire.schema import Request
from millstream.wire.versions import BrokerVersions, Negotiation


class SetupStep(Protocol):
    """One exchange of requests and answers. A connection takes its steps in order; each may end it."""

    purpose: str
    """What the broker must do in this step, for the error when it does not."""

    def request(self) -> tuple[Request, int]:
        """The next request of this step, and its version."""

    def receive(self, frame: memoryview) -> bool:
        """Take the answer: True completes the step, False repeats ``request``; raises to give up."""


class VersionStep:
    """Agrees on the version of each API (KIP-511). Comes first: later steps need the versions."""

    purpose = "say which versions it speaks"

    def __init__(self, software_version: str, broker: str) -> None:
        self.versions: BrokerVersions | None = None
        self._negotiation = Negotiation(software_version, broker)

    def request(self) -> tuple[Request, int]:
        return self._negotiation.request(), self._negotiation.version

    def receive(self, frame: memoryview) -> bool:
        _, self.versions = self._negotiation.receive(frame)
        return self.versions is not None
