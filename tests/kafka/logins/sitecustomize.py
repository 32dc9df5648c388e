"""Imported by Python at the start of a process that a test on a secured broker has started."""

from __future__ import annotations

from tests.kafka.logins import install

install()
