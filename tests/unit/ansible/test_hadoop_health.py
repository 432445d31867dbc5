"""The launcher that asks Hadoop's daemons: what it takes from a writer's report on JournalNodes."""

import runpy

import pytest

from millrace.setup.distributions import LAUNCHERS

takes_edits = runpy.run_path(str(LAUNCHERS / "hadoop/bin/hadoop-health"))["TAKES_EDITS"].findall


@pytest.mark.parametrize(
    "report",
    ["Written txid 603", "Written txid 596 (7 txns/198ms behind)"],
    ids=["even", "on its way"],
)
def test_a_journalnode_takes_edits(report):
    line = f"Writing segment beginning at txid 589. \n198.18.1.11:8485 ({report})"
    assert len(takes_edits(line)) == 1


@pytest.mark.parametrize(
    "report",
    [
        "Written txid 596 (7 txns/1198ms behind)",
        "Written txid 596 (7 txns/198ms behind) (will try to re-sync on next segment)",
        "Written txid 0 (never written",
    ],
    ids=["behind", "out of sync", "never asked"],
)
def test_a_journalnode_does_not(report):
    line = f"Writing segment beginning at txid 589. \n198.18.1.11:8485 ({report})"
    assert takes_edits(line) == []
