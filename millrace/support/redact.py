"""What must not leave this machine: secrets that are known, and what looks like one. Pure, but for
finding those that are known."""

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from millrace.cluster.access import key_file
from millrace.common.paths import REPO, STATE, stack_state
from millrace.plan import Plan

REMOVED = "█████"
SHORTEST = 4  # characters; less than that can't be told from other text
SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSWORD|PASSPHRASE")
SETTINGS = ("password", "passphrase", "secret", "credentials", "_key")
# What looks secret: a private key; a password in a URL; what a request is authorized by; a setting
# that says so itself. Each with words, in small letters, without which it needn't be looked for:
# that is a hundred times faster.
LOOKS_SECRET = (
    (("private key",), re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.S)),
    (("://",), re.compile(r"(://[^/\s:@]+:)[^/\s@]+(?=@)")),
    (("bearer ", "basic "), re.compile(r"((?:Bearer|Basic) )[\w.~+/=-]{8,}")),
    (
        SETTINGS,
        re.compile(rf"((?:{'|'.join(SETTINGS)})[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]+", re.I),
    ),
)


class Redactor:
    """Takes secrets, and each line of them, out of texts: also as JSON, URLs and Base64 have them.

    Nothing of theirs that has `SHORTEST` characters or more is in what comes out.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: one that begins another would leave the other's end.
        forms = {form for secret in secrets for form in _forms(secret)}
        self._known = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        small = text.lower()
        for words, pattern in LOOKS_SECRET:
            if any(word in small for word in words):
                text = pattern.sub(rf"\1{REMOVED}", text)
        for form in self._known:
            text = text.replace(form, REMOVED)
        return text


def _forms(secret: str) -> Iterator[str]:
    for part in {secret.strip(), *(line.strip() for line in secret.splitlines())}:
        if len(part) >= SHORTEST:
            yield part
            yield json.dumps(part)[1:-1]
            yield json.dumps(part, ensure_ascii=False)[1:-1]
            yield quote(part, safe="")
            yield base64.b64encode(part.encode()).decode()


def known_secrets(plan: Plan, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The contents of every secret file of a stack, and the values of such variables."""
    folder = stack_state(plan.environment)
    files = [
        STATE / "passphrase",
        folder / "edge.key",
        REPO / key_file(plan),
        *(path for path in (folder / "secrets").rglob("*") if path.is_file()),
    ]
    values = [value for name, value in environment.items() if SECRET_VARIABLE.search(name)]
    return [*map(_content, files), *values]


def _content(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
