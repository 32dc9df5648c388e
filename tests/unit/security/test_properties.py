"""Properties files as Java reads them, login lines, and references to secrets elsewhere."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ConfigError
from millstream.security.jaas import parse_jaas
from millstream.security.properties import parse_properties
from millstream.security.references import resolve


def test_properties_as_java_reads_them() -> None:
    text = r"""
# a comment
! another
bootstrap.servers=one:9092,\
    two:9092
security.protocol : SASL_SSL
sasl.mechanism PLAIN
  spaces\ in\ name   =   value with trailing space \u0041\u0020
equals=a=b:c
path=C\:\\temp\\x
empty=
only.name
tab=\t|\n|\q
hash=a#b
# continued comment \
last=1
"""
    assert parse_properties(text) == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "spaces in name": "value with trailing space A ",
        "equals": "a=b:c",
        "path": r"C:\temp\x",
        "empty": "",
        "only.name": "",
        "tab": "\t|\n|q",
        "hash": "a#b",
        "last": "1",
    }
    assert parse_properties("a=1\r\nb=2\rc=3\\") == {"a": "1", "b": "2", "c": "3"}
    assert parse_properties("a=1\na=2") == {"a": "2"}


def test_a_wrong_escape_is_named_by_its_line_and_not_quoted() -> None:
    with pytest.raises(ValueError, match="line 2 has a") as caught:
        parse_properties("a=1\npassword=se\\u00zzcret")
    assert "cret" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_properties, parse_jaas):
        with suppress(ValueError):
            parse(text)


CONFLUENT = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "username='7WQCRNKRWYMXL2NB' password='cfltA/b+C==';"
)


def test_a_login_line_as_confluent_cloud_prints_it() -> None:
    module = parse_jaas(CONFLUENT)
    assert (module.name, *module.mechanisms) == ("PlainLoginModule", "PLAIN")
    assert module.options == {"username": "7WQCRNKRWYMXL2NB", "password": "cfltA/b+C=="}
    assert "cflt" not in repr(module)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ('a.ScramLoginModule required username="a" password="b";', {"username": "a", "password": "b"}),
        (
            'ScramLoginModule required\n username = "a;b"\n password="say \\"hi\\"" tokenauth=true ;\n',
            {"username": "a;b", "password": 'say "hi"', "tokenauth": "true"},
        ),
        ("x.y.IAMLoginModule required;", {}),
        (
            'OAuthBearerLoginModule REQUIRED clientId="id" scope="" extension_logicalCluster="l";',
            {"clientId": "id", "scope": "", "extension_logicalCluster": "l"},
        ),
    ],
)
def test_login_lines(line: str, options: dict[str, str]) -> None:
    assert parse_jaas(line).options == options


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "semicolon"),
        ("PlainLoginModule required", "must end with a semicolon"),
        ('PlainLoginModule username="a" password="hidden";', "say required"),
        ('PlainLoginModule required username="a" password="hidden;', "a quote that is not closed"),
        ('PlainLoginModule required username "hidden";', "name=value"),
        ("com.example.OwnLoginModule required;", "'OwnLoginModule'"),
        ("A required; B required;", "one login module"),
    ],
)
def test_a_malformed_login_line_is_explained_without_quoting_it(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_jaas(line)
    assert "hidden" not in str(caught.value)


def test_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_TEST_SECRET", "from env")
    (tmp_path / "secrets.properties").write_text("key=from file\nother=x")
    (tmp_path / "password").write_text("from dir\n")
    assert resolve("${env:MILLSTREAM_TEST_SECRET}") == "from env"
    assert resolve(f"a ${{file:{tmp_path}/secrets.properties:key}} b") == "a from file b"
    assert resolve(f"${{dir:{tmp_path}:password}}") == "from dir"
    assert resolve("${vault:x} $5 {}") == "${vault:x} $5 {}"


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("${env:MILLSTREAM_NOT_SET}", "MILLSTREAM_NOT_SET}: this environment variable is not set"),
        ("${file:/no/such/file:key}", "No such file"),
        ("${dir:/etc:../etc/passwd}", "is not the name of a file"),
        ("${dir:/etc:..}", "is not the name of a file"),
        ("${file:/dev/zero:key}", "larger than"),
    ],
)
def test_what_a_reference_cannot_find(reference: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        resolve(reference)


def test_a_properties_file_without_the_key_does_not_show_its_values(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("other=hidden")
    with pytest.raises(ConfigError, match="has no 'key'") as caught:
        resolve(f"${{file:{tmp_path}/s:key}}")
    assert "hidden" not in str(caught.value)
