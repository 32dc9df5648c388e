"""Who may look at the console: users, sessions, limits on guessing, and where a login leads to."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest

from millstream.cli import main
from millstream.console.login.attempts import Attempts
from millstream.console.login.login import Login, _network
from millstream.console.login.sessions import SESSION_SECONDS, Sessions
from millstream.console.login.users import ConsoleUser, Role, StoredPassword, Users, set_user
from millstream.console.web.access import local_path
from millstream.terminal.outcome import CommandError

STORED = ConsoleUser(StoredPassword(b"s" * 16, b"d" * 32))


def type_password(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))


def test_users_are_kept_hashed_and_for_their_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users.json"
    type_password(monkeypatch, "correct horse")
    assert main(["console-user", "add", "ann", "--users", str(file)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "correct horse" not in file.read_text()
    stored = Users(file).all()["ann"].password
    assert stored.matches("correct horse")
    assert not stored.matches("correct horsE")
    type_password(monkeypatch, "another horse")
    assert main(["console-user", "add", "ann", "--users", str(file), "--role", "change"]) == 0
    type_password(monkeypatch, "another horse")
    assert main(["console-user", "add", "ann", "--users", str(file)]) == 0
    assert Users(file).all()["ann"].role is Role.CHANGE, "a new password is no new role"
    assert Users(file).all()["ann"].password.matches("another horse")
    capsys.readouterr()
    assert main(["console-user", "list", "--users", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"user": "ann", "role": "change"}]
    assert main(["console-user", "remove", "anne", "--users", str(file)]) == 2
    assert "there is no user 'anne' of the console: did you mean 'ann'?" in capsys.readouterr().err
    assert main(["console-user", "remove", "ann", "--users", str(file)]) == 0
    assert not Users(file).all()


def test_one_password_has_another_hash_for_each_user(tmp_path: Path) -> None:
    for user in ("ann", "bob"):
        set_user(tmp_path / "users.json", user, "correct horse")
    ann, bob = (Users(tmp_path / "users.json").all()[user].password for user in ("ann", "bob"))
    assert ann.salt != bob.salt and ann.digest != bob.digest


def test_an_unknown_user_costs_as_much_as_a_known_one(tmp_path: Path) -> None:
    set_user(tmp_path / "users.json", "ann", "correct horse")
    users = Users(tmp_path / "users.json")
    assert users.nobody.password.cost == users.all()["ann"].password.cost
    assert not users.nobody.password.matches("")


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "short"), ("ann", "x" * 1025), ("a\r\nb", "correct horse")]
)
def test_bad_names_and_passwords(
    user: str,
    password: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    type_password(monkeypatch, password)
    assert main(["console-user", "add", user, "--users", str(tmp_path / "users.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "users.json").exists()


@pytest.mark.parametrize(
    "users",
    [
        [],
        {"ann": 1},
        {"ann": {"salt": "!", "scrypt": "", "cost": 2}},
        {"ann": {"salt": "", "scrypt": "A" * 43 + "=", "cost": 2**40}},
        {"ann": {"salt": "", "scrypt": "A" * 43 + "=", "cost": 3}},
        {"ann": {"salt": "", "scrypt": "", "cost": 1024}},
    ],
)
def test_a_damaged_file_lets_no_one_in(users: object, tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    file.write_text(json.dumps({"users": users}))
    file.chmod(0o600)
    with pytest.raises(CommandError, match="is damaged"):
        Login.configured(Users(file), None)


def test_without_users_and_token_there_is_no_login(tmp_path: Path) -> None:
    assert Login.configured(Users(tmp_path / "users.json"), None) is None


def test_a_session_ends() -> None:
    sessions = Sessions()
    token = sessions.open("ann", STORED, 100.0)
    found = sessions.find(token, 99.0 + SESSION_SECONDS)
    assert found is not None and found.user == "ann"
    assert token not in repr(found) and found.csrf not in repr(found)
    assert sessions.find(token, 100.0 + SESSION_SECONDS) is None
    assert sessions.find(token, 100.0) is None, "it does not come back"
    assert sessions.find("", 100.0) is None


def test_sessions_are_bounded() -> None:
    sessions = Sessions()
    tokens = [sessions.open("ann", STORED, 0.0) for _ in range(1001)]
    assert sessions.find(tokens[0], 1.0) is None
    assert sessions.find(tokens[-1], 1.0) is not None
    assert len(set(tokens)) == 1001


def test_guesses_become_slower() -> None:
    attempts = Attempts(free=3)
    now_s, pauses = 0.0, []
    for _ in range(12):
        pauses.append(attempts.wait_s("a", now_s))
        now_s += pauses[-1]
        attempts.count("a", now_s)
    assert pauses == [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert attempts.wait_s("b", now_s) == 0
    assert attempts.wait_s("a", now_s + 900) == 0
    attempts.forget("a")
    assert attempts.wait_s("a", now_s) == 0


def test_counted_attempts_are_bounded() -> None:
    attempts = Attempts(free=1)
    for number in range(10_001):
        attempts.count(number, 0.0)
    assert attempts.wait_s(0, 0.0) == 0
    assert attempts.wait_s(10_000, 0.0) > 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_one_attacker_holds(address: str, network: str) -> None:
    assert _network(address) == network


@pytest.mark.parametrize("path", ["/", "/topics/a?partition=0", "/groups/a%2Fb"])
def test_a_login_leads_to_the_page_that_was_asked_for(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nSet-Cookie: x", "/ä", "a"],
)
def test_a_login_leads_nowhere_else(path: str) -> None:
    assert local_path(path) == "/"
