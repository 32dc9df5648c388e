"""Made-up SCRAM challenges: nothing tells them from those of users."""

from __future__ import annotations

import secrets
from collections import Counter
from pathlib import Path

import pytest

from millstream.broker.log.files import Files
from millstream.broker.security.users import ScramUsers
from millstream.security.sasl.scram import MECHANISMS, ScramCredential

SCRAM = MECHANISMS["SCRAM-SHA-256"]
OTHER = MECHANISMS["SCRAM-SHA-512"]


def credential(iterations: int, salt_bytes: int) -> ScramCredential:
    return ScramCredential(secrets.token_bytes(salt_bytes), iterations, b"k" * 32, b"k" * 32)


@pytest.fixture
def users(tmp_path: Path) -> ScramUsers:
    made = ScramUsers(tmp_path / "users", Files())
    made.change(
        {
            **{(f"slow-{number}", SCRAM.name): credential(16_384, 25) for number in range(5)},
            **{(f"quick-{number}", SCRAM.name): credential(4096, 16) for number in range(5)},
            ("other", OTHER.name): credential(5000, 99),
        }
    )
    return made


def look(users: ScramUsers, name: str) -> tuple[int, int]:
    found, known = users.challenge_for(name, SCRAM)
    assert not known
    return found.iterations, len(found.salt)


def test_made_up_challenges_look_like_those_of_the_users_there_are(users: ScramUsers) -> None:
    seen = Counter(look(users, f"nobody-{number}") for number in range(300))
    assert set(seen) == {(16_384, 25), (4096, 16)}


def test_a_made_up_challenge_stays_the_same(users: ScramUsers, tmp_path: Path) -> None:
    again = ScramUsers(tmp_path / "users", Files())
    again.open()
    for number in range(50):
        name = f"nobody-{number}"
        assert users.challenge_for(name, SCRAM) == again.challenge_for(name, SCRAM)
    salts = {users.challenge_for(f"nobody-{number}", SCRAM)[0].salt for number in range(50)}
    assert len(salts) == 50


def test_one_more_user_changes_few_of_the_made_up_challenges(users: ScramUsers) -> None:
    names = [f"nobody-{number}" for number in range(500)]
    before = {name: users.challenge_for(name, SCRAM)[0] for name in names}
    users.change({("new", SCRAM.name): credential(8192, 32)})
    changed = [name for name in names if users.challenge_for(name, SCRAM)[0] != before[name]]
    assert len(changed) < 400
    assert {look(users, name) for name in changed} == {(8192, 32)} or not changed


def test_without_users_there_is_a_challenge_too(tmp_path: Path) -> None:
    assert look(ScramUsers(tmp_path / "users", Files()), "nobody") == (4096, 16)
