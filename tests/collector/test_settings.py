"""Settings that would let in whom they shouldn't."""

import hashlib
from typing import Any

import pytest
from pydantic import ValidationError

from tests.collector.conftest import collector_settings


def key(name: str, secret: str) -> dict[str, Any]:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return {"name": name, "sha256": digest, "events_per_second": 1}


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValidationError, match="an empty secret"):
        collector_settings(keys=[key("shop", "")])


@pytest.mark.parametrize("name", ["page", "shop"])
def test_two_keys_are_two_names_and_two_secrets(name: str) -> None:
    secrets = ("a" * 32, "a" * 32) if name == "page" else ("a" * 32, "b" * 32)
    with pytest.raises(ValidationError, match=f"shop and {name} have one"):
        collector_settings(keys=[key("shop", secrets[0]), key(name, secrets[1])])
