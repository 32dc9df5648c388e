"""Systems that are not Linux: broker and clients work where a system call of Linux is missing.

A module that Python imports at its start takes the calls away, in the process of the clients and in that of
the broker.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import millstream
from millstream.broker.log import files
from millstream.net import system

USED: Final = (
    "os.fdatasync",
    "os.sendfile",
    "os.preadv",
    "os.sched_getaffinity",
    "select.epoll",
    "socket.MSG_MORE",
)
"""What Linux has, macOS (or an old release of it) lacks, and millstream uses."""
UNUSED: Final = (
    *("os.copy_file_range", "os.eventfd", "os.getrandom", "os.memfd_create", "os.pidfd_open", "os.pipe2"),
    *("os.posix_fadvise", "os.posix_fallocate", "os.preadv2", "os.pwritev2", "os.pwritev", "os.splice"),
    *("os.sched_setaffinity", "os.O_DIRECT", "socket.MSG_NOSIGNAL", "socket.SO_PEERCRED"),
    *("socket.TCP_QUICKACK", "socket.TCP_USER_TIMEOUT", "socket.SOCK_CLOEXEC", "socket.SOCK_NONBLOCK"),
)
"""What Linux has, macOS lacks, and millstream does not use: it must not begin to without a substitute."""
LIMIT: Final = "resource.setrlimit"
"""On macOS it refuses more than 10,240 open files, although the hard limit may be higher."""

SITE: Final = """
import importlib, os
for name in os.environ["TAKEN_AWAY"].split():
    module, _, call = name.partition(".")
    module = importlib.import_module(module)
    if name == "resource.setrlimit":
        def setrlimit(which, limits, given=module.setrlimit):
            if limits[0] > 10240:
                raise ValueError("current limit exceeds maximum limit")
            given(which, limits)
        module.setrlimit = setrlimit
    elif hasattr(module, call):
        delattr(module, call)
"""
WORK: Final = """
import sys
from millstream import Consumer, EmbeddedBroker, Producer

def read(count):
    config = {"group_id": "readers", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **config) as consumer:
        consumer.subscribe(["t"])
        found = []
        while len(found) < count:
            records = consumer.poll(60)
            assert records, "nothing came"
            found += [record.value for record in records]
        consumer.commit()
        return found

def write(values):
    with Producer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
        for value in values:
            producer.send("t", value)

first = [b"%d" % number for number in range(1000)] + [bytes(200_000)]  # the last is sent as a file
with EmbeddedBroker(sys.argv[1], settings={"group.initial.rebalance.delay.ms": 0}) as broker:
    write(first)
    assert read(len(first)) == first
    broker.stop()
    broker.start()
    write([b"after"])
    assert read(1) == [b"after"]
print("done")
"""


@pytest.mark.parametrize("taken", [*USED, LIMIT, "all"])
def test_broker_and_clients_work_without(taken: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    names = (*USED, *UNUSED, LIMIT) if taken == "all" else (taken,)
    paths = (str(tmp_path), str(Path(millstream.__file__).parents[1]))
    environment = {**os.environ, "TAKEN_AWAY": " ".join(names), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(tmp_path / "data")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


def test_calls_of_linux_are_in_the_two_modules_with_substitutes() -> None:
    words = "|".join(re.escape(name) for name in (*USED, *UNUSED) if name != "os.sched_getaffinity")
    source = Path(millstream.__file__).parent
    allowed = {Path(files.__file__), Path(system.__file__)}
    found = {
        path
        for path in source.rglob("*.py")
        if path not in allowed and re.search(rf"\b(?:{words})\b", path.read_text())
    }
    assert not found


def test_files_are_sent_and_read_without_their_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sendfile")
    monkeypatch.delattr(os, "preadv")
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    ours, theirs = socket.socketpair()
    with path.open("rb") as file, ours, theirs:
        assert system.send_file(ours, file.fileno(), 2, 5) == 5
        assert theirs.recv(100) == b"23456"
        assert system.send_file(ours, file.fileno(), 10, 5) == 0, "the end of the file"
        target = memoryview(bytearray(4))
        assert system.read_into(file.fileno(), target, 8) == 2
        assert bytes(target) == b"89\0\0"


def test_a_sync_goes_through_to_the_disk_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There fsync ends in the disk's cache. An error of the disk is raised, and not tried again."""
    calls: list[int] = []
    answer = OSError(0, "")

    def full_sync(fd: int, command: int) -> None:
        calls.append(command)
        if answer.errno:
            raise answer

    monkeypatch.setattr(files, "_FULL_SYNC", 51)
    monkeypatch.setattr("fcntl.fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(-1))
    monkeypatch.delattr(os, "fdatasync")
    file = files.Files().open(tmp_path / "file", create=True)
    file.fdatasync()
    files.Files().sync_directory(tmp_path)
    assert calls == [51, 51]
    answer.errno = errno.ENOTSUP  # a file system without it
    file.fdatasync()
    assert calls == [51, 51, 51, -1]
    answer.errno = 5
    with pytest.raises(OSError, match="Errno"):
        file.fdatasync()
    assert calls[-1] == 51, "a failed sync is not followed by one that succeeds"
