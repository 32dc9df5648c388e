"""The process of ``millstream broker``: start, print one line when ready, serve until a signal."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.settings import BrokerSettings
from millstream.cli.broker.arguments import DEFAULT_DATA, DEFAULT_LISTEN, BrokerOptions
from millstream.cli.broker.server_properties import ServerProperties, read_server_properties
from millstream.cli.properties import read_properties
from millstream.errors import ConfigError
from millstream.terminal.outcome import CommandError, UsageError

_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"


def serve(options: BrokerOptions) -> int:
    """Run a broker until SIGTERM or SIGINT, which stop it cleanly."""
    logging.basicConfig(level=options.log_level, format=_LOG_FORMAT, stream=sys.stderr)
    file = read_server_properties(options.config) if options.config else ServerProperties({})
    properties = {**file.settings, **read_properties(options.settings, "--set")}
    if options.listen and options.config and file.settings.get("listeners") == properties.get("listeners"):
        properties.pop("listeners", None)
    try:
        return _serve(options, file, properties)
    except ConfigError as error:
        if not file.references:
            raise
        raise file.without_secrets(error) from None


def _serve(options: BrokerOptions, file: ServerProperties, properties: Mapping[str, object]) -> int:
    BrokerSettings.from_properties(properties)  # before anything is made
    data = Path(options.data or file.data or DEFAULT_DATA)
    if data.exists() and not data.is_dir():
        raise UsageError(f"{data} is not a directory: choose another with --data")
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{data} cannot be created ({error.strerror}): choose another with --data"
        ) from error
    broker = _start(options, data, properties)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: broker.stop())
    print(_ready_line(broker, data, as_json=options.as_json), flush=True)
    broker.run()
    return 0


def _start(options: BrokerOptions, data: Path, properties: Mapping[str, object]) -> Broker:
    allow_remote, secure = options.allow_remote, options.secure
    listen = options.listen or DEFAULT_LISTEN
    try:
        return Broker.launch(
            data, properties, listen, allow_remote=allow_remote, secure=secure, metrics=options.metrics
        )
    except ConfigError as error:
        if isinstance(error.__cause__, OSError):  # such as an address in use: the options are not wrong
            raise CommandError(str(error)) from error
        raise


def _ready_line(broker: Broker, data: Path, *, as_json: bool) -> str:
    if as_json:
        listeners = {listener.name: str(listener.address) for listener in broker.listeners}
        where: dict[str, object] = {
            "address": broker.address,
            "listeners": listeners,
            "data": str(data.absolute()),
        }
        if broker.client_properties is not None:
            where["client_properties"] = str(broker.client_properties)
        if broker.metrics_server is not None:
            where["metrics"] = f"http://{broker.metrics_server.address}/metrics"
        return json.dumps({**where, "pid": os.getpid()})
    shown = broker.address if len(broker.listeners) == 1 else ", ".join(map(str, broker.listeners))
    login = "" if broker.client_properties is None else f", clients use {broker.client_properties}"
    if broker.metrics_server is not None:
        login += f", metrics on http://{broker.metrics_server.address}/metrics"
    return f"millstream broker is ready on {shown}{login}, data in {data.absolute()}; Ctrl-C stops it"
