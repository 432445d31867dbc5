"""Keys as a door knows them: what is read, who is found, and what stays while ZooKeeper is away."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_shared.keys import (
    ALL,
    SCOPES,
    USED_SECONDS,
    FileStore,
    Follower,
    Key,
    Keys,
    Secret,
    sha256,
)
from millrace_shared.strict import Misconfigured
from tests.clock import Clock
from tests.keys import FakeRegistry, Memory

SECRET, OTHER = "one-secret-of-32-bytes-at-the-least", "other-secret-of-32-bytes-at-the-least"
SHOP = Key([Secret(sha256(SECRET.encode()))], streams=["clicks"], events_per_second=10)

times = st.floats(0, 4e9)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
keys = st.builds(
    Key,
    secrets=st.lists(st.builds(Secret, digests, st.none() | times), max_size=3),
    streams=st.lists(st.text(), max_size=3),
    events_per_second=st.integers(0),
    client_events_per_second=st.none() | st.integers(1),
    scopes=st.lists(st.sampled_from(SCOPES)),
    expires=st.none() | times,
    made_at=times,
    made_by=st.text(),
)


@given(st.dictionaries(st.text(), keys))
def test_keys_are_read_as_they_were_written(made: dict[str, Key]) -> None:
    assert Keys.parse(Keys(made).content()) == made


def test_what_newer_versions_say_is_left_out_and_what_older_ones_did_not_say_has_its_default() -> (
    None
):
    newer = asdict(SHOP) | {"colour": "red", "secrets": [{"sha256": "a", "salt": "b"}]}
    assert Keys.parse(json.dumps({"shop": newer}).encode()) == {
        "shop": replace(SHOP, secrets=[Secret("a")])
    }
    assert Keys.parse(b'{"shop": {"secrets": []}}') == {"shop": Key([])}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"keys"',
        b'{"shop": []}',
        b'{"shop": {}}',
        b'{"shop": {"secrets": 1}}',
        b'{"shop": {"secrets": ["a"]}}',
        b'{"shop": {"secrets": [{}]}}',
        b'{"shop": {"secrets": [], "streams": "events"}}',
        b'{"shop": {"secrets": [], "expires": "soon"}}',
    ],
)
def test_what_are_no_keys_is_refused(content: bytes) -> None:
    with pytest.raises((ValueError, Misconfigured)):
        Keys.parse(content)


# -- Who is found


def test_a_key_is_found_by_its_secret_and_by_nothing_else() -> None:
    known = Keys({"shop": SHOP})
    assert known.find(SECRET, 0) == ("shop", SHOP)
    for wrong in ("", OTHER, SECRET[:-1], SECRET.upper(), sha256(SECRET.encode()), "\ud800"):
        assert known.find(wrong, 0) is None


@pytest.mark.parametrize("secret", ["", "a" * 31])
def test_a_secret_that_could_be_guessed_is_none_whatever_the_keys_say(secret: str) -> None:
    known = Keys({"shop": replace(SHOP, secrets=[Secret(sha256(secret.encode()))])})
    assert known.find(secret, 0) is None


def test_a_key_expires() -> None:
    known = Keys({"shop": replace(SHOP, expires=100.0)})
    assert known.find(SECRET, 99.9)
    assert known.find(SECRET, 100) is None


def test_the_older_of_two_secrets_ends_and_the_newer_one_goes_on() -> None:
    both = [Secret(sha256(SECRET.encode()), until=100.0), Secret(sha256(OTHER.encode()))]
    known = Keys({"shop": replace(SHOP, secrets=both)})
    assert [bool(known.find(SECRET, now)) for now in (0, 99.9, 100, 1e9)] == [1, 1, 0, 0]
    assert all(known.find(OTHER, now) for now in (0, 99.9, 100, 1e9))


@given(keys, times)
def test_no_secret_is_valid_behind_its_end_or_the_key_s(key: Key, now: float) -> None:
    for secret in key.secrets_at(now):
        assert secret in key.secrets
        assert all(now < end for end in (key.expires, secret.until) if end is not None)


def test_a_key_writes_its_streams() -> None:
    assert SHOP.may_write("clicks")
    assert not SHOP.may_write("events")
    assert not SHOP.may_write(ALL)
    assert replace(SHOP, streams=[ALL]).may_write("events")
    assert not replace(SHOP, events_per_second=0).may_write("clicks")
    assert not replace(SHOP, client_events_per_second=0).may_write("clicks")


# -- How a door follows


class Door:
    """A follower with all that it has to do with, on a clock that a test moves."""

    def __init__(self, folder: Path, registry: FakeRegistry | None = None) -> None:
        self.path = folder / "keys.json"
        self.clock = Clock(1000.0)
        self.registry = registry or FakeRegistry({"shop": SHOP})
        self.follower = Follower(self.registry, FileStore(self.path), 2, self.clock)
        self.follower.open()

    def loses_zookeeper(self) -> None:
        self.registry.answers = False
        with pytest.raises(ConnectionError):
            self.follower.look()


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def test_a_door_knows_no_keys_before_it_has_looked(door: Door) -> None:
    assert (door.follower.keys, door.follower.find(SECRET)) == (None, None)
    door.follower.look()
    assert door.follower.find(SECRET) == ("shop", SHOP)


def test_a_change_is_known_after_a_look(door: Door) -> None:
    door.follower.look()
    door.registry.content = Keys({"shop": replace(SHOP, secrets=[])}).content()
    door.follower.look()
    assert door.follower.find(SECRET) is None


def test_without_zookeeper_a_door_goes_on_also_over_a_restart(door: Door, tmp_path: Path) -> None:
    door.follower.look()
    door.loses_zookeeper()
    assert door.follower.find(SECRET)
    again = Door(tmp_path, door.registry)
    again.loses_zookeeper()
    assert again.follower.find(SECRET)


@pytest.mark.parametrize("lost", [None, b"", b"nonsense"])
def test_a_node_that_is_lost_empty_or_no_keys_takes_nobody_s_key(
    door: Door, tmp_path: Path, lost: bytes | None
) -> None:
    door.follower.look()
    copy = door.path.read_bytes()
    door.registry.content = lost
    with pytest.raises((LookupError, ValueError)):
        door.follower.look()
    assert door.follower.find(SECRET)
    assert door.path.read_bytes() == copy


def test_the_copy_is_the_door_s_alone_and_holds_no_secret(door: Door) -> None:
    door.follower.look()
    assert door.path.stat().st_mode & 0o777 == 0o600
    assert SECRET not in door.path.read_text()
    assert [path.name for path in door.path.parent.iterdir()] == ["keys.json"]


def test_a_copy_that_was_left_half_written_or_spoilt_is_none(door: Door, tmp_path: Path) -> None:
    door.path.with_name("keys.json.partial").write_bytes(b'{"shop"')
    door.path.write_bytes(b'{"shop"')
    again = Door(tmp_path, door.registry)
    assert again.follower.keys is None
    again.follower.look()
    assert Keys.parse(door.path.read_bytes()) == {"shop": SHOP}


def test_a_copy_that_could_not_be_written_is_written_later(door: Door) -> None:
    door.path.mkdir()
    with pytest.raises(IsADirectoryError):
        door.follower.look()
    assert door.follower.find(SECRET)
    assert door.follower.doors == 2
    door.path.rmdir()
    door.follower.look()
    assert door.path.is_file()


def test_doors_are_those_that_are_there_and_all_where_nobody_says(door: Door) -> None:
    told = []
    for there in (0, 1, 2, 3):
        door.registry.there = there
        door.follower.look()
        told.append(door.follower.doors)
    assert told == [1, 1, 2, 2]
    door.registry.there = 1
    door.follower.look()
    door.loses_zookeeper()
    assert door.follower.doors == 2


def test_when_a_key_was_used_is_noted_once_a_minute(door: Door, tmp_path: Path) -> None:
    door.follower.find(SECRET)  # no key is known yet, so none is used
    door.follower.look()
    assert door.registry.notes == 0
    while door.clock.seconds < 1000 + 3 * USED_SECONDS:
        door.follower.find(SECRET)
        door.follower.find(OTHER)
        door.follower.look()
        door.clock.sleep(2)
    assert (door.registry.notes, door.registry.noted) == (3, {"shop": 1000 + 2 * USED_SECONDS})
    again = Door(tmp_path, door.registry)
    again.follower.look()
    assert door.registry.notes == 3


def test_what_was_noted_of_a_key_goes_with_the_key(door: Door) -> None:
    door.registry.noted = {"gone": 1.0, "shop": 2.0}
    door.follower.look()
    door.follower.find(SECRET)
    door.follower.look()
    assert door.registry.noted == {"shop": 1000.0}
    door.registry.content = b"{}"
    for _ in range(3):
        door.clock.sleep(USED_SECONDS)
        door.follower.look()
    assert door.registry.notes == 1


@given(
    st.lists(
        st.one_of(
            st.just("look"),
            st.just("restart"),
            st.booleans(),
            st.sampled_from([None, b"", b"{}", b"nonsense", Keys({"shop": SHOP}).content()]),
        ),
        max_size=30,
    )
)
def test_a_door_has_the_last_keys_that_it_saw_whatever_happens(steps: list[Any]) -> None:
    """Kept in a store of memory: restarts and outages in any order."""
    registry, store, clock = FakeRegistry({"shop": SHOP}), Memory(), Clock()
    follower = Follower(registry, store, 2, clock)
    seen: Keys | None = None
    for step in steps:
        if step == "restart":
            follower = Follower(registry, store, 2, clock)
            follower.open()
        elif isinstance(step, bool):
            registry.answers = step
        elif step == "look":
            readable = registry.content and registry.content != b"nonsense"
            try:
                follower.look()
                assert registry.answers
                assert readable
            except (ConnectionError, LookupError, ValueError):
                assert not (registry.answers and readable)
            else:
                seen = Keys.parse(registry.content or b"")
        else:
            registry.content = step
        assert follower.keys == seen
