"""Several group members in one program: one consumer per thread.

The threads share the topic's partitions. Ctrl-C stops all of them: wakeup() may be called from any thread.
"""

import argparse
import signal
import sys
import threading

from millstream import Consumer
from millstream.errors import WakeupError


class Worker(threading.Thread):
    """A thread with its own consumer."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        super().__init__(name=name)
        self.count = 0
        self._topic = options.topic
        self._consumer = Consumer(
            bootstrap_servers=options.bootstrap_servers, group_id=options.group, auto_offset_reset="earliest"
        )

    def run(self) -> None:
        """Count records until ``stop`` is called."""
        with self._consumer as consumer:
            consumer.subscribe([self._topic])
            try:
                while True:
                    records = consumer.poll(timeout=60.0)
                    self.count += len(records)
                    if records:
                        # One write: print() makes two, and another thread may print in between.
                        sys.stdout.write(f"{self.name}: {self.count} records\n")
                        sys.stdout.flush()
            except WakeupError:
                pass

    def stop(self) -> None:
        """End the thread soon."""
        self._consumer.wakeup()


def main() -> None:
    """Run workers until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="one-consumer-per-thread")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    workers = [Worker(f"worker-{number}", options) for number in range(options.threads)]

    def stop(*_: object) -> None:
        for worker in workers:
            worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"done after {sum(worker.count for worker in workers)} records")


if __name__ == "__main__":
    main()
