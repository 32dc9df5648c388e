"""``millstream produce``: the command and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from millstream.cli.clients import client_properties
from millstream.cli.options import ClientOptions, Common, Topic
from millstream.cli.produce.options import InputOptions, SendOptions

_NOT_PROPERTIES: Final = {
    "compression.type": "use --compression",
    "key.serializer": "keys are sent as they are read",
    "value.serializer": "values are sent as they are read",
    # of Kafka's console producer
    "parse.key": "use --key-separator",
    "key.separator": "use --key-separator",
    "parse.headers": "use --header, or --format records",
}


def produce(
    topic: Topic,
    reading: InputOptions,
    sending: SendOptions,
    client: ClientOptions,
    common: Common,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The file to read; standard input by default, or with -."),
    ] = None,
) -> None:
    """Send records to a topic: lines, JSON lines or CSV, from a file or standard input.

    Lines are sent as they are, without their line ends (Unix or Windows). Each JSON line is checked and sent
    as it is. Each row of a CSV file is sent as a JSON object. The format records reads what millstream
    consume --json prints.

    The command ends when the brokers have all records. Ctrl-C ends it early; it then prints how many records
    were written and how to continue. A missing topic is created if the broker creates topics automatically,
    and a message says so. A name close to another topic's is refused as a typo, unless --create is given.

    [bold]Examples[/bold]

      echo 'hello' | millstream produce greetings
      millstream produce orders orders.jsonl --key customer.id
      millstream produce customers customers.csv --key country
      millstream produce pairs --key-separator : < pairs.txt
      millstream produce copy --format records < consumed.jsonl
    """
    path = None if file is None or str(file) == "-" else file
    reading = reading.checked(path)
    sending.check()
    from millstream.config import ProducerConfig

    typed = client_properties(client.properties, _NOT_PROPERTIES, ProducerConfig)
    from millstream.cli.produce.run import send_input

    send_input(topic, path, reading, sending, common, typed)
