"""Where tokens come from (a callable, a token endpoint, AWS's signer), and how long they are kept."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
import trustme

from millstream.client.setup.oidc import TokenEndpoint
from millstream.client.setup.tokens import TokenSource
from millstream.errors import AuthenticationError, ConfigError
from millstream.security.login import Login, SaslSettings


class Endpoint(HTTPServer):
    """A token endpoint that answers as ``answer`` says, and keeps what it was asked."""

    def __init__(self, authority: trustme.CA) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answer: tuple[int, bytes] = (200, b"")
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.url = f"https://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.asked.append((self.headers["authorization"], urllib.parse.parse_qs(body)))
        status, data = self.server.answer
        self.send_response(status)
        if status == 302:
            self.send_header("location", "https://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def endpoint(authority: trustme.CA) -> Iterator[Endpoint]:
    server = Endpoint(authority)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


LOGIN = Login(mechanism="OAUTHBEARER", client_id="me", client_secret="s+e/cret", scope="kafka")


def source(endpoint: Endpoint, authority: trustme.CA) -> TokenSource:
    pem = authority.cert_pem.bytes().decode()
    settings = SaslSettings(mechanism="OAUTHBEARER", token_endpoint_url=endpoint.url, https_ca_pem=pem)
    return TokenSource(settings)


def test_a_token_endpoint_is_asked_once_for_many_connections(
    endpoint: Endpoint, authority: trustme.CA
) -> None:
    endpoint.answer = (200, json.dumps({"access_token": "t.o.k", "expires_in": 3600}).encode())
    tokens = source(endpoint, authority)
    found = [tokens.token("broker", LOGIN) for _ in range(5)]
    assert {each.value for each in found} == {"t.o.k"}
    assert 0.7 * 3600 < found[0].use_until - time.time() < 0.9 * 3600
    ((authorization, form),) = endpoint.asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:s+e/cret"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    tokens.forget(found[0])
    tokens.token("broker", LOGIN)
    assert len(endpoint.asked) == 2
    assert "t.o.k" not in repr(found)


def test_a_token_that_has_expired_is_replaced(endpoint: Endpoint, authority: trustme.CA) -> None:
    endpoint.answer = (200, json.dumps({"access_token": "t", "expires_in": 0}).encode())
    tokens = source(endpoint, authority)
    tokens.token("broker", LOGIN)
    tokens.token("broker", LOGIN)
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            (401, b'{"error": "invalid_client", "error_description": "no such client"}'),
            "HTTP 401 (invalid_client: no",
        ),
        ((500, b"oops"), "refused the client 'me': HTTP 500"),
        ((302, b""), "HTTP 302"),
        ((200, b"<html>"), "did not answer with an access_token"),
        ((200, b"[]"), "did not answer with an access_token"),
    ],
)
def test_what_the_endpoint_may_answer_instead(
    endpoint: Endpoint, authority: trustme.CA, answer: tuple[int, bytes], problem: str
) -> None:
    endpoint.answer = answer
    with pytest.raises(AuthenticationError) as caught:
        source(endpoint, authority).token("broker", LOGIN)
    assert problem in str(caught.value)
    assert "s+e/cret" not in str(caught.value)


def test_an_endpoint_of_another_ca_is_not_told_the_secret(endpoint: Endpoint) -> None:
    pem = trustme.CA().cert_pem.bytes().decode()
    with pytest.raises(AuthenticationError, match=r"cannot be reached: .*CERTIFICATE_VERIFY_FAILED"):
        TokenEndpoint(endpoint.url, "", pem).fetch(LOGIN)
    assert endpoint.asked == []


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://host/x", "https://"])
def test_only_web_addresses_are_asked(url: str) -> None:
    with pytest.raises(ConfigError, match="must be an https address"):
        TokenEndpoint(url, "", "")


def called(returned: Any) -> TokenSource:
    return TokenSource(SaslSettings(mechanism="OAUTHBEARER", oauth_callback=lambda config: returned))


def test_what_a_callable_may_return() -> None:
    soon = time.time() + 1000
    pair = called(("abc", soon)).token("b", LOGIN)
    assert (pair.value, dict(pair.extensions)) == ("abc", {})
    assert time.time() + 700 < pair.use_until < soon
    assert called(("abc", soon, "me", {"poolId": "x"})).token("b", LOGIN).extensions == {"poolId": "x"}
    claims = jwt.encode({"exp": int(soon)}, "k" * 32, algorithm="HS256")
    assert called(claims).token("b", LOGIN).use_until > time.time() + 700
    assert called("opaque").token("b", LOGIN).use_until <= time.time()


@pytest.mark.parametrize("returned", [None, 5, ("abc", "tomorrow"), (b"abc", 1.0)])
def test_what_a_callable_may_not_return(returned: Any) -> None:
    with pytest.raises(AuthenticationError, match="oauth_cb must return a token"):
        called(returned).token("b", LOGIN)


def test_awss_signer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    tokens = TokenSource(SaslSettings(mechanism="AWS_MSK_IAM"))
    login = Login(mechanism="AWS_MSK_IAM")
    found = tokens.token("b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com", login)
    signed = base64.urlsafe_b64decode(found.value + "=" * (-len(found.value) % 4)).decode()
    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "aws-secret" not in signed
    assert found.use_until > time.time() + 300
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(AuthenticationError, match="set the environment variable AWS_REGION"):
        tokens.token("kafka.example.com", login)
