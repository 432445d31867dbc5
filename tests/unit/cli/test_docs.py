import re
import subprocess

import pytest

from millrace.cli.docs import ARCHITECTURE, README, audited, filled, write_docs
from millrace.cli.job_facts import all_jobs, facts_of
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.drill.report import Audit, JobAudit
from millrace.plan import load_plan

CONTRIBUTING = REPO / "CONTRIBUTING.md"


def test_generated_parts_of_the_documents_are_up_to_date():
    write_docs(check=True)


def test_the_front_page_is_short_and_knows_every_folder():
    text = README.read_text()
    assert len(text.splitlines()) <= 120
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True)
    folders = {line.partition("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    folders = {f"{name}/" for name in folders if not name.startswith(".")}
    assert len(folders) > 10
    assert folders - set(re.findall(r"`([\w-]+/)`", text)) == set()


def files_named(page):
    """Paths that a page has as code, but for those with a name to be filled in."""
    named = re.findall(r"`([\w.-]+/[\w./-]+)`", page.read_text())
    return {name for name in named if "." in name and not re.search(r"[A-Z]{4}", name)}


@pytest.mark.parametrize(
    ("page", "link"),
    [
        (README, "(docs/drills/README.md#zone-lost)"),
        (REPO / "docs" / "operating.md", "(drills/README.md#zone-lost)"),
    ],
)
@pytest.mark.parametrize("name", ["drills", "guarantees"])
def test_a_block_is_made_on_whichever_page_has_it(page, link, name):
    text = f"Before.\n\n<!-- generated: {name} -->\nwhat was\n<!-- end -->\n\nAfter.\n"
    made = filled(page, text, load_plan("local"))
    assert made.startswith(f"Before.\n\n<!-- generated: {name} -->\n| ")
    assert made.endswith(" |\n<!-- end -->\n\nAfter.\n")
    assert link in made


def test_a_block_that_nothing_makes_is_named():
    text = "<!-- generated: promises -->\n<!-- end -->\n"
    with pytest.raises(OperatorError, match=r"^README.md: nothing makes a block 'promises'"):
        filled(README, text, load_plan("local"))


def test_every_file_that_the_architecture_names_is_there():
    named = files_named(ARCHITECTURE)
    assert len(named) > 30
    assert {name for name in named if not (REPO / name).exists()} == set()


def test_every_file_that_contributors_are_sent_to_is_there():
    """Names that begin with a folder of the repository; others are parts of a role or a program."""
    named = {n for n in files_named(CONTRIBUTING) if (REPO / n.partition("/")[0]).is_dir()}
    assert len(named) > 5
    assert {name for name in named if not (REPO / name).exists()} == set()


def test_a_job_is_told_of_by_the_first_drill_that_audited_it():
    audit = Audit(lost=0, duplicated=0, wrong=0, acknowledged=9, failed=0, in_doubt=0)
    rows = {"attribution": JobAudit(rows=4, lost=1, duplicated=0, wrong=2)}
    audits = [audit, audit.model_copy(update={"acknowledged": 8, "jobs": rows})]
    plan = load_plan("local")
    found = {job: audited(facts_of(plan, job), audits) for job in all_jobs(plan)}
    assert found["traffic"] == "0, 0, 0 of 9 events"
    assert found["attribution"] == "1, 0, 2 of 4 rows"
    assert found["status_by_minute"] == "–"


DOORS = ("insights", "intake", "plain_insights", "plain_intake")


def test_addresses_that_users_are_told_have_the_plans_ports():
    services = load_plan("local").services
    ports = {
        "EDGE": {services["edge_proxy"].ports[door] for door in DOORS},
        "BROKER": {services["kafka_broker"].ports["outside"]},
    }
    told = [
        (place, int(port))
        for path in (REPO / "README.md", *(REPO / "docs").glob("*.md"))
        for place, port in re.findall(r"\b(EDGE|BROKER):(\d+)", path.read_text())
    ]
    assert {place for place, _ in told} == set(ports)
    assert [each for each in told if each[1] not in ports[each[0]]] == []
