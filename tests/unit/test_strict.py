"""What a deployment renders is what a program reads; anything else is refused by its place."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace_shared.strict import Misconfigured, load, read


@dataclass(frozen=True)
class Server:
    host: str
    weight: float


@dataclass(frozen=True)
class Fleet:
    servers: list[Server]
    ports: dict[str, int]
    logs: Path
    address: tuple[str, int]


CONTENT = {
    "servers": [{"host": "a", "weight": 1}],
    "ports": {"http": 80},
    "logs": "/var/log",
    "address": ["a", 1],
}


def test_json_becomes_typed() -> None:
    expected = Fleet([Server("a", 1.0)], {"http": 80}, Path("/var/log"), ("a", 1))
    assert read(Fleet, CONTENT) == expected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"servers": [{"host": "a"}]}, "servers[0].weight: is missing"),
        ({"servers": [{"host": "a", "weight": 1, "wait": 2}]}, "servers[0].wait: is unknown"),
        ({"servers": [{"host": 5, "weight": 1}]}, "servers[0].host: 5 is no str"),
        ({"servers": ["a"]}, "servers[0]: 'a' has no keys"),
        ({"servers": {}}, "servers: {} is no list"),
        ({"ports": {"http": "80"}}, "ports.http: '80' is no int"),
        ({"ports": {"http": True}}, "ports.http: True is no int"),
        ({"logs": None}, "logs: None is no Path"),
        ({"address": ["a"]}, "address: ['a'] is no tuple"),
        ({"more": 1}, "more: is unknown"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: dict, complaint: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        read(Fleet, CONTENT | change)
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_file_that_is_no_such_json_is_named(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Misconfigured, match=r"some\.json"):
        load(Fleet, path)
