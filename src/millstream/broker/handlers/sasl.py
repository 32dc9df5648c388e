"""Handles SaslHandshake, SaslAuthenticate, and the requests about SCRAM users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.security.sasl import MAX_TOKEN_BYTES, Exchange, SaslSession, Step
from millstream.broker.security.users import MECHANISM_OF_TYPE, UserKey
from millstream.broker.services import Services
from millstream.errors import (
    BrokerError,
    CorruptMessage,
    ErrorCode,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    for_code,
)
from millstream.security.sasl.scram import MECHANISMS, MIN_ITERATIONS, ScramCredential
from millstream.wire.messages.sasl import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_NO_SASL = "this listener has no login: set security.protocol to PLAINTEXT, or SSL where it encrypts"
_Alteration = ScramCredentialDeletion | ScramCredentialUpsertion
_MAX_ITERATIONS = 16_384
"""As in Kafka."""


@handles(SASL_HANDSHAKE)
def sasl_handshake(
    broker: Services, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse | None:
    """Choose a mechanism, or learn which there are."""
    session = context.sasl
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    try:
        is_known = session.begin(request.mechanism)
    except CorruptMessage as error:
        context.close(str(error))
        return None
    code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=session.mechanisms)


@handles(SASL_AUTHENTICATE)
def sasl_authenticate(
    broker: Services, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | None:
    """Take one step of the exchange, on another thread if it may take long."""
    session = context.sasl
    if session is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b""
        )
    try:
        exchange = session.take_exchange()
    except CorruptMessage as error:
        context.close(str(error))
        return None
    if len(request.auth_bytes) > MAX_TOKEN_BYTES:
        context.close(
            f"a SASL message of {len(request.auth_bytes)} bytes: at most {MAX_TOKEN_BYTES} are taken"
        )
        return None
    message = bytes(request.auth_bytes)
    if not exchange.blocks:
        _answer(broker, context, session, _take_step(exchange, message))
    else:
        broker.run_blocking(
            lambda: _take_step(exchange, message),
            lambda outcome: _answer(broker, context, session, outcome),
        )
    return None


def _take_step(exchange: Exchange, message: bytes) -> Step | SaslAuthenticationFailedError:
    try:
        return exchange.step(message)
    except CorruptMessage as error:
        return SaslAuthenticationFailedError(str(error))
    except SaslAuthenticationFailedError as error:
        return error


def _answer(
    broker: Services,
    context: RequestContext,
    session: SaslSession,
    outcome: Step | SaslAuthenticationFailedError,
) -> None:
    """Send the step's answer; a refusal also ends the connection, once it is sent."""
    if isinstance(outcome, Step):
        try:
            lifetime_ms = session.complete_step(outcome, broker.reactor.now_ms(), broker.epoch_ms() / 1000)
        except SaslAuthenticationFailedError as error:
            outcome = error
        else:
            if outcome.done is not None:
                broker.metrics.logins += 1
            context.reply(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.NONE, auth_bytes=outcome.answer, session_lifetime_ms=lifetime_ms
                )
            )
            return
    broker.metrics.logins_failed += 1
    message = outcome.detail or str(outcome)
    refusal = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message, auth_bytes=b""
    )
    deadline_ms = broker.reactor.now_ms() + session.failure_delay_ms
    broker.reactor.call_at(deadline_ms, lambda: context.reply_and_close(refusal, message))


# -- users


@handles(DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(
    broker: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Say which mechanisms users have, and with how many iterations."""
    times = Counter(user.name for user in request.users or ())
    names = list(times) or broker.scram_users.names()
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, results=[_described(broker, name, times[name]) for name in names]
    )


def _described(broker: Services, name: str, times: int) -> DescribeUserScramCredentialsResult:
    stored = ((each.type_id, broker.scram_users.get(name, each.name)) for each in MECHANISMS.values())
    found = [
        CredentialInfo(mechanism=type_id, iterations=credential.iterations)
        for type_id, credential in stored
        if credential is not None
    ]
    code, message = int(ErrorCode.NONE), None
    if times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"the user {name} is named more than once"
    elif not found:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"the user {name} has no SCRAM credential"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=message, credential_infos=[] if code else found
    )


@handles(ALTER_USER_SCRAM_CREDENTIALS)
def alter_user_scram_credentials(
    broker: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Store and remove credentials; a user with one invalid change keeps all as they were."""
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    times = Counter((each.name, each.mechanism) for each in alterations)
    changes: dict[str, dict[UserKey, ScramCredential | None]] = {}
    errors: dict[str, BrokerError] = {}
    for each in alterations:
        try:
            if times[each.name, each.mechanism] > 1:
                raise for_code(ErrorCode.DUPLICATE_RESOURCE)(f"{each.name} is changed twice in the request")
            changes.setdefault(each.name, {}).update(_change(broker, each))
        except BrokerError as error:
            errors.setdefault(each.name, error)
    good = {key: value for user, own in changes.items() if user not in errors for key, value in own.items()}
    failure = _store(broker, good) if good else None
    names = dict.fromkeys(each.name for each in alterations)
    return AlterUserScramCredentialsResponse(
        results=[_altered(name, errors.get(name, failure)) for name in names]
    )


def _change(broker: Services, wanted: _Alteration) -> Mapping[UserKey, ScramCredential | None]:
    unacceptable = for_code(ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if not wanted.name:
        raise unacceptable("a user's name must not be empty")
    mechanism = MECHANISM_OF_TYPE.get(wanted.mechanism)
    if mechanism is None:
        raise UnsupportedSaslMechanismError(f"{wanted.mechanism} is not a SCRAM mechanism")
    key = (wanted.name, mechanism.name)
    if isinstance(wanted, ScramCredentialDeletion):
        if broker.scram_users.get(*key) is None:
            missing = f"the user {wanted.name} has no {mechanism.name} credential"
            raise for_code(ErrorCode.RESOURCE_NOT_FOUND)(missing)
        return {key: None}
    if not MIN_ITERATIONS <= wanted.iterations <= _MAX_ITERATIONS:
        raise unacceptable(
            f"{wanted.iterations} iterations: {MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted"
        )
    salt, salted = bytes(wanted.salt), bytes(wanted.salted_password)
    if not salt or len(salted) != len(mechanism.hash(b"")):
        raise unacceptable("the salt is empty, or the salted password has a wrong length")
    return {key: mechanism.credential_of_salted(salted, salt, wanted.iterations)}


def _store(broker: Services, changes: Mapping[UserKey, ScramCredential | None]) -> BrokerError | None:
    try:
        broker.scram_users.change(changes)
    except OSError as error:
        return for_code(ErrorCode.KAFKA_STORAGE_ERROR)(f"the users could not be stored: {error.strerror}")
    return None


def _altered(name: str, error: BrokerError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
    )
