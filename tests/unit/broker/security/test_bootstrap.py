"""The files of ``--secure``: private, and refused where others could have put them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from millstream.broker.access.control import AccessControl
from millstream.broker.log.files import Files
from millstream.broker.security import bootstrap
from millstream.broker.security.users import ScramUsers
from millstream.broker.served_topics import ServedTopics
from millstream.broker.settings import BrokerSettings
from millstream.errors import ConfigError
from millstream.security.acls import Acl, Operation, ResourceType
from millstream.security.sasl.scram import ScramCredential


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_become_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "security").mkdir()
    (tmp_path / "security").chmod(0o755)
    bootstrap.secure_settings(tmp_path, ["127.0.0.1"])
    assert mode(tmp_path) == mode(tmp_path / "security") == 0o700
    assert {mode(path) for path in (tmp_path / "security").iterdir()} == {0o600}


@pytest.mark.parametrize("bits", [0o770, 0o702])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, bits: int) -> None:
    (tmp_path / "security").mkdir()
    (tmp_path / "security").chmod(bits)
    with pytest.raises(ConfigError, match="chmod 700"):
        bootstrap.secure_settings(tmp_path, [])


def test_a_link_instead_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "security").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="not a directory but a link"):
        bootstrap.secure_settings(tmp_path / "data", [])
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "secret.new").symlink_to(victim)
    bootstrap._write_private(tmp_path / "secret", b"s")
    assert victim.read_text() == "precious" and (tmp_path / "secret").read_bytes() == b"s"
    (tmp_path / "users.tmp").symlink_to(victim)
    Files().write_atomically(tmp_path / "users", b"u", private=True)
    assert victim.read_text() == "precious" and mode(tmp_path / "users") == 0o600


def test_users_and_acls_of_an_older_directory_become_private(tmp_path: Path) -> None:
    users = ScramUsers(tmp_path / "users", Files())
    users.change({("ann", "SCRAM-SHA-256"): ScramCredential(b"salt", 4096, b"k" * 32, b"k" * 32)})
    settings = BrokerSettings()
    topics = ServedTopics(settings, lambda: 0)
    access = AccessControl(settings, topics, tmp_path / "acls", Files())
    access.change(added=[Acl(ResourceType.TOPIC, "t", "User:ann", Operation.READ)])
    assert mode(tmp_path / "acls") == 0o600
    for name in ("users", "acls"):
        (tmp_path / name).chmod(0o644)
    users.open()
    access.open()
    assert mode(tmp_path / "users") == mode(tmp_path / "acls") == 0o600
