"""franz-go's own tests of its client, on a secured broker: over TLS by a certificate, and by SCRAM.

Its tests of SCRAM use no TLS; ``test_clients_logged_in`` has franz-go with both. TestIssue769 is left out: it
panics in franz-go itself. So is TestTxnEtl, which did not end within two minutes here.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from millstream import Admin
from tests.kafka.clients import toolchains
from tests.system.secured import AUTHORIZER, make_certificates, secured_broker
from tests.waiting import SECONDS

TESTS: Final = (
    *("TestPing", "TestSCRAMAuth", "TestSCRAMAuthBadCredentials", "TestIssue1034", "TestIssue325"),
    *("TestIssue648", "TestIssue810", "TestIssue831", "TestIssue865", "TestConsumeRegex", "TestPooling"),
    *("TestConsumeTopicRetrieval", "TestConsumeTopicRetrieval_Many", "TestAddRemovePartitions"),
    *("TestDirectPartitionPurge", "TestPauseIssue489", "TestPauseIssueOct2023", "TestHookPollStart"),
    *("TestClient_ProduceLargeMessages", "TestGroupSimple", "TestGroupETL"),
)
"""Those that take a few seconds at most, and the one of groups."""
USER, PASSWORD = "franz", "franz-secret"


@pytest.mark.timeout(960)  # it may have to be built first
def test_franz_suite(tmp_path: Path) -> None:
    command = toolchains.franz_suite()
    certificates = make_certificates(tmp_path)
    own = certificates.issue_client(USER)
    with secured_broker(
        certificates,
        "SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        ssl_client_auth="required",
        ssl_truststore_location=certificates.ca,
        ssl_principal_mapping_rules="RULE:^.*?CN=([a-z]+).*$/$1/,DEFAULT",
        authorizer_class_name=AUTHORIZER,
        super_users=f"User:{USER}",
    ) as broker:
        by_certificate = {
            "bootstrap.servers": broker.addresses["SSL"],
            "security.protocol": "SSL",
            "ssl.ca.location": certificates.ca,
            "ssl.certificate.location": own,
            "ssl.key.location": own,
        }
        with Admin(by_certificate) as admin:
            admin.set_password(USER, PASSWORD, "SCRAM-SHA-512")
        done = subprocess.run(
            [
                *command,
                "-test.v",
                "-test.run",
                f"^({'|'.join(TESTS)})$",
                "-test.timeout",
                f"{3 * SECONDS:.0f}s",
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "KGO_SEEDS": broker.addresses["SSL"],
                "KGO_TEST_TLS": f"ca:{certificates.ca},cert:{own},key:{own}",
                "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:512",
                "KGO_TEST_SCRAM_SEEDS": broker.addresses["SASL_PLAINTEXT"],
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": "1000",
                "KGO_TEST_MAX_TOPIC_PARTS": "3",
                "KGO_LOG_LEVEL": "none",
            },
            capture_output=True,
            text=True,
            timeout=4 * SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    passed = set(re.findall(r"^--- PASS: (\w+)", done.stdout, re.MULTILINE))
    assert passed == set(TESTS), "none is skipped"
