"""What the producer's tests share."""

from __future__ import annotations

import uuid

from millstream.admin import Admin


def make_topic(admin: Admin, partitions: int, **configs: object) -> str:
    """A new topic. Settings are Kafka's, with underscores for the dots."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin.create_topic(
        name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
    )
    return name
