"""Names in certificates as Java writes them, so that rules see the same text as on Apache Kafka."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from millstream.broker.security.principals import distinguished_name
from tests.kafka.not_run import not_run

PROGRAM = Path(__file__).parent / "names" / "CertificateNames.java"
KEY = ec.generate_private_key(ec.SECP256R1())
UNKNOWN = ObjectIdentifier("1.3.6.1.4.1.99999.1")


def attribute(oid: ObjectIdentifier, value: str, kind: _ASN1Type | None = None) -> NameAttribute[Any]:
    return NameAttribute(oid, value, kind, _validate=False)


def name(*relatives: tuple[NameAttribute[Any], ...]) -> x509.Name:
    return x509.Name([RelativeDistinguishedName(each) for each in relatives])


CN, OU, C, UID, DC = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
)
NAMES = [
    name((attribute(C, "DE"),), (attribute(OU, "dev"),), (attribute(CN, "ann"),)),
    name((attribute(C, "DE"),), (attribute(CN, "a"), attribute(OU, "b"))),
    name((attribute(OU, "b"), attribute(CN, "a"), attribute(UID, "7"))),
    name((attribute(NameOID.EMAIL_ADDRESS, "ann@x.example"), attribute(CN, "ann"))),
    name((attribute(UNKNOWN, "what, ever"),), (attribute(CN, "x"),)),
    name((attribute(CN, ' a,b+c"d\\e<f>g;h=i#j '),)),
    name((attribute(CN, "#begin"),), (attribute(OU, "  "),)),
    name((attribute(CN, "jürgen 日本 \u0001"),)),
    name((attribute(DC, "example"),), (attribute(DC, "com"),)),
    name((attribute(NameOID.LOCALITY_NAME, "l"),), (attribute(NameOID.STREET_ADDRESS, "s"),)),
    name((attribute(NameOID.STATE_OR_PROVINCE_NAME, "st"),), (attribute(NameOID.ORGANIZATION_NAME, "o"),)),
    name((attribute(NameOID.SURNAME, "sn"),), (attribute(NameOID.SERIAL_NUMBER, "1"),)),
    name(
        (attribute(CN, "printable", _ASN1Type.PrintableString),), (attribute(OU, "i", _ASN1Type.IA5String),)
    ),
    name((attribute(DC, "y" * 300),)),
    name(),
]


def certificate(subject: x509.Name) -> bytes:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([attribute(CN, "ca")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def test_names_are_those_of_java(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        not_run("names in certificates as Java writes them", "javac is not on the PATH")
    files = []
    for number, subject in enumerate(NAMES):
        files.append(tmp_path / f"{number}.der")
        files[-1].write_bytes(certificate(subject))
    ran = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", str(PROGRAM), *map(str, files)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    javas = ran.stdout.decode().split("\n")[:-1]
    assert [distinguished_name(file.read_bytes()) for file in files] == javas
    assert "CN=a+OU=b,C=DE" in javas
