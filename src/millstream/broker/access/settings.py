"""The broker's settings for ACLs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from millstream.settings import Flag, Settings, read_text, setting

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _read_authorizer(value: object) -> str:
    name = read_text(value)
    if name not in ("", STANDARD_AUTHORIZER):
        raise ValueError(f"must be {STANDARD_AUTHORIZER}, whose rules are built in")
    return name


def _read_super_users(value: object) -> tuple[str, ...]:
    users = tuple(filter(None, map(str.strip, read_text(value).split(";"))))
    if any(":" not in user for user in users):
        raise ValueError("must be principals such as User:admin, separated by semicolons")
    return users


@dataclass(frozen=True, kw_only=True)
class AccessSettings(Settings):
    """Whether ACLs are in force, and what goes before them."""

    authorizer_class_name: Annotated[str, _read_authorizer] = setting(
        "", f"`{STANDARD_AUTHORIZER}` puts ACLs into force; without it everyone may do everything."
    )
    super_users: Annotated[tuple[str, ...], _read_super_users] = setting(
        (), "Principals that may do everything, such as `User:admin;User:ops`.", shown="none"
    )
    allow_everyone_if_no_acl_found: Flag = setting(
        False, "Whether everyone may use a resource for which there is no ACL."
    )
