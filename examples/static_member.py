"""A static member: with its own group.instance.id it can restart without a rebalance.

Start two with different ids, then stop one and start it again within the session timeout: it gets its old
partitions back, without a rebalance. If two members have the same id, the older one is fenced.
"""

import argparse
import signal
import sys

from millstream import Consumer, RebalanceListener, TopicPartition
from millstream.errors import FencedInstanceIdError, WakeupError


class Reporter(RebalanceListener):
    """Prints partitions as they change."""

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Print them with the group's generation, which each rebalance increases."""
        print("assigned", *partitions, "in generation", consumer.group_metadata().generation_id, flush=True)

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Print them."""
        print("revoked", *partitions, flush=True)


def main() -> None:
    """Read until SIGTERM or SIGINT. A static member does not leave its group then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="static-members")
    parser.add_argument("--instance-id", default="worker-1")
    parser.add_argument(
        "--session-timeout-ms", type=int, default=60_000, help="the time allowed for a restart"
    )
    options = parser.parse_args()

    with Consumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group,
        group_instance_id=options.instance_id,
        session_timeout_ms=options.session_timeout_ms,
        auto_offset_reset="earliest",
    ) as consumer:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.wakeup())
        consumer.subscribe([options.topic], listener=Reporter())
        try:
            while True:
                consumer.poll(timeout=1.0)
        except WakeupError:
            pass
        except FencedInstanceIdError as error:
            sys.exit(f"fenced: {error}")
    print("stopped; the group keeps my place", flush=True)


if __name__ == "__main__":
    main()
