"""Edits of keys: what each refuses, and that no order of them locks anybody out unasked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.errors import OperatorError
from millrace.keys import (
    SECRET_BYTES,
    adding,
    digest,
    moment,
    new_secret,
    operator_rate,
    require,
    revoking,
    revoking_old,
    rotating,
    with_operator,
)
from millrace.plan import load_plan
from millrace_shared.keys import ALL, LEAST_SECRET_BYTES, OPERATOR, SCOPES, Key, Keys, Secret

PLAN = load_plan("local")
NOW, DAY = 1_800_000_000.0, 86_400
FIRST, SECOND, THIRD = (f"secret-{number}-" + "x" * 32 for number in range(3))
SHOP = Key([Secret(digest(FIRST))], streams=["events"], events_per_second=10)


def test_a_secret_is_nobody_s_guess() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(len(secret) >= LEAST_SECRET_BYTES and SECRET_BYTES >= 32 for secret in made)


# -- What can't be meant


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("Shop", {}, "'Shop' is no name"),
        ("", {}, "is no name"),
        ("a" * 64, {}, "is no name"),
        ("shop/../x", {}, "is no name"),
        ("shop", {"streams": ["events", "nothing"]}, "no stream nothing that takes JSON; there is"),
        ("shop", {"scopes": ["everything"]}, "no scope everything; there is insights"),
        ("shop", {"streams": [], "events_per_second": 0}, "the key may do nothing"),
        ("shop", {"events_per_second": 0}, "--rate says"),
        ("shop", {"streams": [], "scopes": ["insights"]}, "--rate is of what it may write"),
        ("page", {"client_events_per_second": 1, "streams": ["events", "clicks"]}, "exactly one"),
        ("page", {"client_events_per_second": 1, "streams": [ALL]}, "exactly one"),
        ("page", {"client_events_per_second": 1, "scopes": ["insights"]}, "reads nothing"),
        ("page", {"client_events_per_second": 11}, "from 1 up to --rate"),
        ("page", {"client_events_per_second": 0}, "from 1 up to --rate"),
    ],
)
def test_what_can_t_be_meant_is_refused(name: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        require(PLAN, name, replace(SHOP, **changes))  # type: ignore[arg-type]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(OperatorError) as refused:
        require(PLAN, "A", Key([], streams=["b"], scopes=["c"]))
    assert len(refused.value.message.splitlines()) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"streams": [ALL]},
        {"streams": [], "events_per_second": 0, "scopes": [*SCOPES]},
        {"scopes": ["letters"]},
        {"client_events_per_second": 10},
    ],
)
def test_what_can_be_meant_is_taken(changes: dict[str, object]) -> None:
    require(PLAN, "shop-2", replace(SHOP, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "at"), [("90d", NOW + 90 * DAY), ("2 hours", NOW + 7200), ("2027-01-31", 1801353600.0)]
)
def test_a_moment_is_a_duration_from_now_or_a_day(text: str, at: float) -> None:
    assert moment(text, NOW) == at


@pytest.mark.parametrize("text", ["2020-01-31", "0d", "soon", "2027-02-31", ""])
def test_a_moment_that_is_none_or_has_passed_is_refused(text: str) -> None:
    with pytest.raises(OperatorError):
        moment(text, NOW)


# -- Edits


def test_a_key_is_added_once() -> None:
    keys = adding("shop", SHOP)(Keys())
    assert keys == {"shop": SHOP}
    with pytest.raises(OperatorError, match="there is a key shop already"):
        adding("shop", SHOP)(keys)
    with pytest.raises(OperatorError, match="toolkit's own"):
        adding(OPERATOR, SHOP)(keys)


def test_the_older_secret_ends_after_the_overlap() -> None:
    keys = rotating("shop", digest(SECOND), NOW, 3600)(Keys({"shop": SHOP}))
    for now, first in ((NOW, True), (NOW + 3599, True), (NOW + 3600, False)):
        assert bool(keys.find(FIRST, now)) == first
        assert keys.find(SECOND, now)


def test_without_an_overlap_it_ends_at_once() -> None:
    keys = rotating("shop", digest(SECOND), NOW, 0)(Keys({"shop": SHOP}))
    assert keys == {"shop": replace(SHOP, secrets=[Secret(digest(SECOND))])}


def test_a_second_rotation_is_refused_while_two_are_valid() -> None:
    keys = rotating("shop", digest(SECOND), NOW, 3600)(Keys({"shop": SHOP}))
    with pytest.raises(OperatorError, match="the older one until 2027-01-15T09:00:00Z") as refused:
        rotating("shop", digest(THIRD), NOW + 3599, 3600)(keys)
    assert "revoke shop --old" in (refused.value.hint or "")
    later = rotating("shop", digest(THIRD), NOW + 3600, 3600)(keys)
    assert [one.sha256 for one in later["shop"].secrets] == [digest(SECOND), digest(THIRD)]
    now = revoking_old("shop", NOW)(keys)
    assert not now.find(FIRST, NOW)
    assert rotating("shop", digest(THIRD), NOW, 3600)(now).find(SECOND, NOW)


def test_what_is_not_there_or_has_expired_is_refused() -> None:
    expired = Keys({"shop": replace(SHOP, expires=NOW)})
    with pytest.raises(OperatorError, match="has expired"):
        rotating("shop", digest(SECOND), NOW, 3600)(expired)
    for edit in (rotating("x", "", NOW, 1), revoking("x"), revoking_old("x", NOW)):
        with pytest.raises(OperatorError, match="there is no key x; nothing was"):
            edit(expired)
    with pytest.raises(OperatorError, match="no older secret"):
        revoking_old("shop", NOW)(Keys({"shop": SHOP}))
    assert revoking("shop")(expired) == {}


def test_two_names_never_have_one_secret() -> None:
    keys = Keys({"shop": SHOP, "other": replace(SHOP, secrets=[Secret(digest(SECOND))])})
    with pytest.raises(OperatorError, match="other and shop would have one secret"):
        rotating("other", digest(FIRST), NOW, 3600)(keys)
    with pytest.raises(OperatorError, match="operator and shop would have one secret"):
        with_operator(PLAN, FIRST, NOW, "me")(keys)


def test_the_operator_s_key_is_the_file_s_and_may_do_everything() -> None:
    made = with_operator(PLAN, FIRST, NOW, "me")(Keys({"shop": replace(SHOP, secrets=[])}))
    _, own = made.find(FIRST, NOW) or ("", SHOP)
    assert (own.streams, own.scopes, own.made_by) == ([ALL], [*SCOPES], "me")
    assert own.events_per_second == operator_rate(PLAN) > 0
    assert with_operator(PLAN, FIRST, NOW + 1, "another")(made) == made
    other = with_operator(PLAN, SECOND, NOW, "me")(made)
    assert not other.find(FIRST, NOW)
    assert other.find(SECOND, NOW)
    with pytest.raises(OperatorError, match="toolkit's own"):
        revoking(OPERATOR)(made)


def test_who_has_the_older_file_while_it_is_rotated_takes_nothing_back() -> None:
    made = with_operator(PLAN, FIRST, NOW, "me")(Keys())
    rotated = rotating(OPERATOR, digest(SECOND), NOW, 3600)(made)
    assert with_operator(PLAN, FIRST, NOW, "another")(rotated) == rotated
    assert with_operator(PLAN, SECOND, NOW, "me")(rotated) == rotated


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rotate", "revoke old", "up"]),
            st.floats(0, 2 * DAY),
            st.sampled_from([0, 3600, DAY]),
        ),
        max_size=20,
    )
)
def test_never_more_than_two_secrets_and_the_newest_one_is_valid(
    steps: list[tuple[str, float, int]],
) -> None:
    now, newest = NOW, FIRST
    keys = with_operator(PLAN, newest, now, "me")(Keys())
    for number, (step, pause, overlap) in enumerate(steps):
        now += pause
        another = f"another-secret-{number}-" + "x" * 32
        try:
            if step == "rotate":
                keys, newest = rotating(OPERATOR, digest(another), now, overlap)(keys), another
            elif step == "revoke old":
                keys = revoking_old(OPERATOR, now)(keys)
            else:
                keys = with_operator(PLAN, newest, now, "me")(keys)
        except OperatorError:
            assert step != "up"
        assert 1 <= len(list(keys[OPERATOR].secrets_at(now))) <= 2
        assert keys.find(newest, now + 100 * DAY)
