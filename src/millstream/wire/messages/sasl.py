"""Authentication (SASL): the handshake, the exchange of tokens, and the users that SCRAM knows."""

from __future__ import annotations

from millstream.wire.schema import (
    Api,
    Request,
    Response,
    Struct,
    array,
    data,
    int8,
    int16,
    int32,
    int64,
    string,
)

SASL_HANDSHAKE = Api(17, "SaslHandshake", 0, 1)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, flexible=2)
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(50, "DescribeUserScramCredentials", 0, 0, flexible=0)
ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", 0, 0, flexible=0)


class SaslHandshakeRequest(Request, api=SASL_HANDSHAKE):
    """Choose a mechanism to authenticate with."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, api=SASL_HANDSHAKE):
    """The mechanisms that the broker offers."""

    error_code: int = int16()
    mechanisms: list[str] = array(string())


class SaslAuthenticateRequest(Request, api=SASL_AUTHENTICATE):
    """One step of the exchange, opaque to the protocol."""

    auth_bytes: bytes = data()


class SaslAuthenticateResponse(Response, api=SASL_AUTHENTICATE):
    """The broker's side of the step, and how long the session lasts at the end."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = data()
    session_lifetime_ms: int = int64("1+", default=0)


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Request, api=DESCRIBE_USER_SCRAM_CREDENTIALS):
    """Ask which users have SCRAM credentials (KIP-554). Null or none means all users."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response, api=DESCRIBE_USER_SCRAM_CREDENTIALS):
    """The mechanisms of each user."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = data()
    salted_password: bytes = data()


class AlterUserScramCredentialsRequest(Request, api=ALTER_USER_SCRAM_CREDENTIALS):
    """Store and remove SCRAM credentials. A password is salted by the client, and never sent."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class AlterUserScramCredentialsResponse(Response, api=ALTER_USER_SCRAM_CREDENTIALS):
    """The result for each user."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
