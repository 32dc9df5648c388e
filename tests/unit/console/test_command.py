"""``millstream console``: what was typed and makes no sense, or cannot be done."""

from __future__ import annotations

import socket

import pytest

from millstream.cli import main


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--host", "0.0.0.0"], "there is no login: add a user with 'millstream console-user add NAME'"),
        (["--host", "0.0.0.0", "--allow-remote"], "there is no login: add a user"),
        (["--bearer-token", "typed-in-the-open"], "--bearer-token takes a reference"),
        (["--bearer-token", "${env:NOT_SET_AT_ALL}"], "this environment variable is not set"),
        (["--trusted-proxy", "proxy.example"], "write an address, as 10.0.0.5"),
        (["--tls-key", "key.pem"], "give --tls-certificate as well"),
        (["--tls-certificate", "/nowhere.pem"], "No such file"),
        (["-b", "nowhere"], "--bootstrap-servers 'nowhere'"),
        (["--table", "lake/orders"], "is not a known sink"),
        (["--property", "retry.backof.ms=1"], "did you mean retry.backoff.ms?"),
        (["--property", "bootstrap.servers=x:1"], "use --bootstrap-servers"),
        (["--refresh", "0"], "--refresh"),
        (["--port", "99999"], "--port"),
    ],
)
def test_misuse(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "--port", "0", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err and err.count("\n") == 1


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["console", "--port", port]) == 1
    assert f"cannot listen on 127.0.0.1:{port} (address already in use)" in capsys.readouterr().err
