"""Who is told of alerts: a receiver in Alertmanager's own words, whose secrets are files.

A setting that ends in ``_file`` is the bare name of a file on the operator's machine, in
``.millrace/ENVIRONMENT/secrets/``. Neither plan nor state nor inventory ever has what is in it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.plan.parts import CONFIG_ROOT, unit

# Settings of Alertmanager that are secrets; each of them can be given as a file instead.
SECRETS = {
    "api_url",
    "auth_password",
    "bearer_token",
    "client_secret",
    "credentials",
    "password",
    "routing_key",
    "service_key",
}
FILE = "_file"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def problems(receiver: Mapping[str, Any]) -> Iterator[str]:
    """Secrets that would be seen by whoever reads the repository, and files that are paths."""
    for key, value in _settings(receiver):
        if key in SECRETS:
            yield f"receiver: {key} is a secret: say {key}{FILE}, and the name of a file for it"
        if key.endswith(FILE) and not (isinstance(value, str) and NAME.fullmatch(value)):
            yield f"receiver: {key}: {value!r} is not the bare name of a file"


def secrets_folder() -> str:
    """Returns the folder of the files on hosts that send alerts."""
    return f"{CONFIG_ROOT}/{unit('alertmanager')}/secrets"


def secrets_of(receiver: Mapping[str, Any]) -> list[str]:
    """Returns the files that the receiver names."""
    return sorted({value for key, value in _settings(receiver) if key.endswith(FILE)})


def with_folder(receiver: Any, folder: str) -> Any:
    """The receiver as Alertmanager takes it where a folder has its files."""
    if isinstance(receiver, list):
        return [with_folder(part, folder) for part in receiver]
    if isinstance(receiver, Mapping):
        return {
            key: f"{folder}/{value}" if key.endswith(FILE) else with_folder(value, folder)
            for key, value in receiver.items()
        }
    return receiver


def _settings(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        yield from part.items()
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _settings(each)
