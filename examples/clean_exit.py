"""A clean exit: a signal calls wakeup(), poll() raises WakeupError, and close() leaves the group at once.

Only wakeup() may be called from a signal handler or from another thread.
"""

import argparse
import signal

from millstream import Consumer
from millstream.errors import WakeupError


def main() -> None:
    """Count until SIGTERM (kill, systemd, Kubernetes) or SIGINT (Ctrl-C)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="clean-exit")
    options = parser.parse_args()

    count = 0
    with Consumer(
        bootstrap_servers=options.bootstrap_servers, group_id=options.group, auto_offset_reset="earliest"
    ) as consumer:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.wakeup())
        consumer.subscribe([options.topic])
        try:
            while True:
                records = consumer.poll(timeout=60.0)
                count += len(records)
                print(f"{count} records", flush=True)
        except WakeupError:
            print("asked to stop", flush=True)
    print(f"done after {count} records; the group has been left", flush=True)


if __name__ == "__main__":
    main()
