"""What holds for every Ansible role: documented options, and no name or path of its own."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.common.paths import ANSIBLE, CONFIGS
from millrace.config import component_names
from millrace.inventory import PATHS
from millrace.plan import load_plan

ROLES = sorted(path for path in (ANSIBLE / "roles").iterdir() if path.is_dir())
RUNS_A_ROLE = ("ansible.builtin.import_role", "ansible.builtin.include_role")

each_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


@cache
def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) if path.exists() else None


def entry_points(role: Path) -> dict[str, Any]:
    return read(role / "meta" / "argument_specs.yml")["argument_specs"]


def options(role: Path) -> dict[str, Any]:
    """Option → its description, of all entry points."""
    return {
        name: option
        for entry in entry_points(role).values()
        for name, option in entry["options"].items()
    }


def files(role: Path) -> list[Path]:
    """What is run on hosts or rendered for them."""
    folders = ("defaults", "vars", "tasks", "templates")
    return [path for folder in folders for path in (role / folder).rglob("*") if path.is_file()]


def tasks_of(folder: Path) -> Iterator[Path]:
    """Files of tasks and plays below a folder."""
    return (path for path in folder.rglob("*.yml") if path.parent.name in ("tasks", "playbooks"))


def test_all_that_can_be_verified_is() -> None:
    """A release and an `up` go on once every standby is well: none may be left out."""
    plays = read(ANSIBLE / "playbooks" / "verify.yml")
    verified = {play["hosts"] for play in plays}
    services = set(component_names())
    able = {role.name for role in ROLES if (role / "tasks" / "verify.yml").exists()}
    assert verified == able & services


def test_a_play_is_tagged_by_the_services_that_it_makes() -> None:
    """So that `--tags redis` makes Redis, and nothing is left out of every choice."""
    services = set(load_plan("prod").services)
    plays = [play for play in read(ANSIBLE / "playbooks" / "site.yml") if "hosts" in play]
    made = set()
    for play in plays:
        roles = {*play.get("roles", []), *(run["name"] for run in runs(play.get("tasks")))}
        everywhere = play["hosts"] == "all"
        makes = roles if everywhere else {*play["hosts"].split(":"), *roles} & services
        assert set(play["tags"]) == makes, play["name"]
        made |= makes
    assert services <= made
    for play in read(ANSIBLE / "playbooks" / "verify.yml"):
        assert play["tags"] == [play["hosts"]]


def test_whatever_is_chosen_the_hosts_are_checked() -> None:
    [first, *_] = read(ANSIBLE / "playbooks" / "site.yml")
    assert (first["ansible.builtin.import_playbook"], first["tags"]) == ("preflight.yml", "always")


@each_role
def test_every_option_has_a_type_and_a_description(role: Path) -> None:
    for entry, spec in entry_points(role).items():
        assert spec["short_description"], entry
        for name, option in spec["options"].items():
            assert {"type", "description"} <= option.keys(), name


@each_role
def test_defaults_and_options_are_the_same(role: Path) -> None:
    """An option has a default, or it is required, or it comes from the inventory."""
    defaults = (read(role / "defaults" / "main.yml") or {}).keys()
    known = options(role)
    given = {name for name, option in known.items() if option.get("required")}
    assert known.keys() - given == set(defaults)


def calls(tasks: Any) -> Iterator[dict[str, Any]]:
    """Tasks that run a role, inside blocks, too."""
    for task in tasks or []:
        for inner in ("block", "rescue", "always", "tasks"):
            yield from calls(task.get(inner))
        if task.keys() & set(RUNS_A_ROLE):
            yield task


def runs(tasks: Any) -> Iterator[dict[str, Any]]:
    """What is said of the roles that these tasks run."""
    return (task[name] for task in calls(tasks) for name in RUNS_A_ROLE if name in task)


def test_a_call_that_is_not_validated_on_hosts_is_as_the_role_has_it() -> None:
    """Validation is a task on every host; of roles that many call it was a fifth of a run."""
    unchecked = 0
    for path in (path for folder in ("roles", "playbooks") for path in tasks_of(ANSIBLE / folder)):
        for task in calls(read(path)):
            run = next(task[name] for name in RUNS_A_ROLE if name in task)
            if run.get("rolespec_validate", True):
                continue
            spec = entry_points(ANSIBLE / "roles" / run["name"])[run.get("tasks_from", "main")]
            required = {name for name, option in spec["options"].items() if option.get("required")}
            given = task.get("vars", {}).keys()
            assert required <= given <= options(ANSIBLE / "roles" / run["name"]).keys(), path
            unchecked += 1
    assert unchecked > 40


@each_role
def test_an_option_bears_the_name_of_its_role(role: Path) -> None:
    inventory = {"millrace", "millrace_host"} if role.name == "preflight" else set()
    own = options(role).keys() - inventory
    assert [name for name in own if not name.startswith(f"{role.name}_")] == []


def test_every_entry_point_that_is_used_has_its_options_described() -> None:
    """`tasks_from: X` of a role R needs argument_specs.X, or its options go unchecked."""
    texts = [path.read_text() for path in ANSIBLE.rglob("*.yml")]
    used = {
        pair
        for text in texts
        for pair in re.findall(
            r"name: (\w+)\n(?:\s+rolespec_\w+: \w+\n)?\s+tasks_from: (\w+)", text
        )
    }
    described = {(role.name, entry) for role in ROLES for entry in entry_points(role)}
    assert len(used) > 10
    assert used - described == set()


@each_role
def test_no_role_knows_where_things_are(role: Path) -> None:
    """Paths of ours are variables of the inventory."""
    roots = re.compile("|".join(map(re.escape, PATHS.values())))
    found = [path for path in files(role) if roots.search(path.read_text())]
    assert found == []


def test_what_runs_names_its_version() -> None:
    """The link is another version's before a host's turn; what operators and boot scripts call is
    started anew each time."""
    link = re.compile(r"(distributions[.\[][^ ]*|distribution_artifact)\.path\b")
    follow = {role.name for role in ROLES if any(link.search(f.read_text()) for f in files(role))}
    assert follow == {"alertmanager", "distribution", "firewall", "operator_commands"}
    daemon = (ANSIBLE / "roles" / "alertmanager" / "tasks" / "main.yml").read_text()
    assert link.findall(daemon) == ["distributions[alertmanager_plan.distribution]"]  # its pages


def test_every_user_of_a_service_has_a_number_of_its_own() -> None:
    """Without one, a host that gets the service can't be prepared."""
    numbers = read(ANSIBLE / "roles" / "base" / "defaults" / "main.yml")["base_user_ids"]
    users = {read(path).get("user") for path in (CONFIGS / "components").glob("*.yaml")} - {None}
    assert users <= numbers.keys()
    assert len({*numbers.values()}) == len(numbers)
