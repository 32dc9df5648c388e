"""``millstream broker``: the command and its help."""

from __future__ import annotations

from dataclasses import replace

from millstream.cli.broker.arguments import LOG_LEVELS, BrokerOptions
from millstream.terminal.outcome import UsageError


def broker(options: BrokerOptions) -> int:
    """Run the embedded broker until Ctrl-C or SIGTERM.

    One process, durable, speaking Kafka's own protocol: any Kafka client can use it. It prints one line when
    it is ready, and logs to standard error.

    [bold]Examples[/bold]

      millstream broker
      millstream broker --data /var/lib/millstream --listen 127.0.0.1:19092
      millstream broker --set num.partitions=4 --set log.retention.hours=24
      millstream broker --metrics-port 9308
      millstream broker --config server.properties
      millstream broker --json --listen 127.0.0.1:0
    """
    level = options.log_level.upper()
    if level not in LOG_LEVELS:
        raise UsageError(f"--log-level {options.log_level!r} is unknown: choose {', '.join(LOG_LEVELS)}")
    from millstream.cli.broker.serve import serve

    return serve(replace(options, log_level=level))
