"""What a deployment renders is what a program reads; anything else is refused by its place."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millrace_shared.strict import Misconfigured, load, read, read_known


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


@dataclass(frozen=True)
class Member:
    host: str
    weight: float = 1.0
    ports: list[int] = field(default_factory=list)


def test_a_record_that_others_extend_is_read_as_far_as_it_is_known() -> None:
    assert read_known(Member, {"host": "a", "zone": "b"}) == Member("a")
    assert read_known(Member, {"host": "a", "ports": [80]}) == Member("a", ports=[80])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"weight": 1}, "host: is missing"),
        ({"host": "a", "ports": [80, None]}, "ports[1]: None is no int"),
    ],
)
def test_what_is_known_of_it_is_checked(content: dict, complaint: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        read_known(Member, content)
    assert str(refused.value) == complaint


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_file_that_is_no_such_json_is_named(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Misconfigured, match=r"some\.json"):
        load(Fleet, path)
