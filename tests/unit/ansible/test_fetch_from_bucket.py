"""What a host in AWS fetches artifacts with, against an instance's metadata and a bucket here.

The bucket accepts a request only if it is signed as S3 demands, computed here anew:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from millrace.common.paths import ANSIBLE

SCRIPT = ANSIBLE / "roles/distribution/files/fetch-from-bucket"
REGION = "eu-central-1"
SESSION = "a-session"
IDENTITY = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "a/secret", "Token": "a+token=="}
METADATA = {
    "/latest/meta-data/placement/region": REGION,
    "/latest/meta-data/iam/security-credentials/": "millrace-dev-kafka",
    "/latest/meta-data/iam/security-credentials/millrace-dev-kafka": json.dumps(IDENTITY),
}
OBJECT = b"a tarball" * 1000
PATH = "/artifacts/kafka_2.13-4.1.1.tgz"


class Aws(BaseHTTPRequestHandler):
    """IMDSv2 and a bucket on one port."""

    def do_PUT(self) -> None:
        self._answer(200, SESSION.encode())

    def do_GET(self) -> None:
        if self.path in METADATA:
            known = self.headers["X-aws-ec2-metadata-token"] == SESSION
            self._answer(200 if known else 401, METADATA[self.path].encode())
        elif self.path == PATH and self._signed():
            self._answer(200, OBJECT)
        else:
            self._answer(403, b"SignatureDoesNotMatch")

    def _signed(self) -> bool:
        said = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)",
            self.headers.get("Authorization", ""),
        )
        if not said or self.headers["x-amz-security-token"] != IDENTITY["Token"]:
            return False
        key, day, *scope = said[1].split("/")
        names = said[2].split(";")
        # S3 wants every x-amz- header signed.
        sent = [name.lower() for name in self.headers if name.lower().startswith("x-amz-")]
        if key != IDENTITY["AccessKeyId"] or not {"host", *sent} <= set(names):
            return False
        headers = "".join(f"{name}:{self.headers[name].strip()}\n" for name in names)
        payload = self.headers["x-amz-content-sha256"]
        canonical = "\n".join(["GET", self.path, "", headers, said[2], payload])
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        moment = self.headers["x-amz-date"]
        text = "\n".join(["AWS4-HMAC-SHA256", moment, "/".join([day, *scope]), digest])
        return hmac.compare_digest(_sign(f"AWS4{IDENTITY['SecretAccessKey']}", day, text), said[3])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _sign(secret: str, day: str, text: str) -> str:
    key = secret.encode()
    for part in (day, REGION, "s3", "aws4_request", text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


@pytest.fixture
def aws() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Aws) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(aws: str, path: str, target: Path, sha256: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", SCRIPT, f"{aws}{path}", target, sha256],
        env={
            **{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": aws,
        },
        capture_output=True,
        text=True,
    )


def test_an_object_is_fetched_as_the_instance(aws: str, tmp_path: Path) -> None:
    target = tmp_path / "kafka.tgz"
    done = fetch(aws, PATH, target, hashlib.sha256(OBJECT).hexdigest())
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == OBJECT
    assert target.stat().st_mode & 0o777 == 0o600


def test_another_content_is_refused(aws: str, tmp_path: Path) -> None:
    done = fetch(aws, PATH, tmp_path / "kafka.tgz", hashlib.sha256(b"another").hexdigest())
    assert done.returncode != 0
    assert "checksum did NOT match" in done.stderr


def test_a_bucket_that_refuses_is_an_error(aws: str, tmp_path: Path) -> None:
    done = fetch(aws, "/artifacts/none.tgz", tmp_path / "kafka.tgz", "0" * 64)
    assert done.returncode != 0
    assert "403" in done.stderr
