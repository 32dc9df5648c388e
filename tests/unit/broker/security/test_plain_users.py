"""The users of PLAIN: read again when the file that they refer to has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import Admin, EmbeddedBroker
from millstream.broker.security.plain_users import PlainUsers
from millstream.errors import AuthenticationError, ConfigError

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def write(path: Path, **users: str) -> None:
    listed = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    path.write_text(f"users={MODULE} required {listed};\n")


def test_new_users_count_at_once_and_a_damaged_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "users.properties"
    write(file, ann="first")
    users = PlainUsers("INSIDE", f"${{file:{file}:users}}")
    assert users.current() == {"ann": "first"}
    write(file, ann="second", bob="third")
    assert users.current() == {"ann": "second", "bob": "third"}
    for damage in ("", "users=", f"users={MODULE} required;", f'users={MODULE} required user_eve="hunter2'):
        caplog.clear()
        file.write_text(damage)
        assert users.current() == users.current() == {"ann": "second", "bob": "third"}
        assert len(caplog.records) == 1, "said once, however many log in"
        assert "hunter2" not in caplog.text
    file.unlink()
    assert users.current() == {"ann": "second", "bob": "third"}
    write(file, eve="fourth")
    assert users.current() == {"eve": "fourth"}


def test_what_is_wrong_at_the_start_is_raised(tmp_path: Path) -> None:
    for config in ("", f"{MODULE} required;", f'{MODULE} required user_ann="";', "${file:/nowhere:users}"):
        with pytest.raises(ConfigError):
            PlainUsers("INSIDE", config)


def test_a_running_broker_knows_the_new_password(tmp_path: Path) -> None:
    file = tmp_path / "users.properties"
    write(file, ann="first")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f"${{file:{file}:users}}",
    }

    def log_in(password: str) -> None:
        with Admin(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="ann",
            sasl_password=password,
        ) as admin:
            admin.list_topics()

    with EmbeddedBroker(tmp_path / "data", settings=settings) as broker:
        log_in("first")
        write(file, ann="second")
        log_in("second")
        with pytest.raises(AuthenticationError):
            log_in("first")
