"""An S3 for tests: moto's server as a process of its own, with a bucket, and options that say all of it.

Nothing is left to be looked up: without explicit keys, a library would ask addresses outside this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.peers import free_port
from tests.waiting import until

BUCKET: Final = "lake"
SECRET: Final = "a-secret-that-nothing-prints"


@dataclass(frozen=True)
class S3:
    """A running S3."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_region": "us-east-1",
            "aws_access_key_id": "key",
            "aws_secret_access_key": SECRET,
            "allow_http": "true",
        }

    def directory(self) -> str:
        """A place that no other test uses."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@contextmanager
def moto() -> Iterator[S3]:
    port = free_port()
    s3 = S3(f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=_environment(), stdout=quiet, stderr=quiet) as process:
        try:
            until(lambda: _made_bucket(s3), "moto answers", 60)
            yield s3
        finally:
            process.terminate()


def _environment() -> Mapping[str, str]:
    fake = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    return {**os.environ, **fake, "AWS_EC2_METADATA_DISABLED": "true"}


def _made_bucket(s3: S3) -> bool:
    request = urllib.request.Request(f"{s3.endpoint}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
