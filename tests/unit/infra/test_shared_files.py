"""Files that the operators of a stack share: whose content counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import shared
from millrace.common.errors import OperatorError

CONTENTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))


def agreed(files: dict[str, str]) -> dict[str, str]:
    return {name: shared.digest(content) for name, content in files.items()}


@given(CONTENTS, CONTENTS)
def test_whoever_alone_has_changed_a_file_is_right(before, after):
    known = agreed(before)
    assert shared.merge(before, before | after, known) == before | after
    assert shared.merge(before | after, before, known) == before | after


@given(CONTENTS, CONTENTS, CONTENTS)
def test_no_content_is_lost_that_only_one_of_them_has(here, there, before):
    try:
        merged = shared.merge(here, there, agreed(before))
    except OperatorError:
        return
    assert merged.keys() == here.keys() | there.keys()
    for name, content in merged.items():
        assert content in (here.get(name), there.get(name))
        rejected = {here.get(name), there.get(name)} - {content, None}
        assert rejected <= {before.get(name)}


def test_a_file_that_both_have_changed_is_nobodys():
    with pytest.raises(OperatorError, match=r"changed here: ssh_key$"):
        shared.merge({"ssh_key": "mine"}, {"ssh_key": "theirs"}, agreed({"ssh_key": "ours"}))
    with pytest.raises(OperatorError):
        shared.merge({"ssh_key": "mine"}, {"ssh_key": "theirs"}, {})


def test_files_come_for_this_users_eyes_and_once(tmp_path):
    shared.fetch(tmp_path, {"ssh_key": "private", "secrets/hook": "url"})
    assert shared.read(tmp_path) == {"ssh_key": "private", "secrets/hook": "url"}
    assert {path.stat().st_mode & 0o77 for path in tmp_path.rglob("*")} == {0}
    (tmp_path / "secrets/hook").write_text("another")
    shared.fetch(tmp_path, {"ssh_key": "private", "secrets/hook": "url"})
    assert shared.read(tmp_path)["secrets/hook"] == "another"
