"""What holds for every Ansible role: documented options, and no name or path of its own."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.common.paths import ANSIBLE, CONFIGS
from millrace.inventory import PATHS

ROLES = sorted(path for path in (ANSIBLE / "roles").iterdir() if path.is_dir())
# What every host knows from the inventory, whichever role runs.
INVENTORY = ("millrace", "millrace_host")

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


@each_role
def test_an_option_says_which_part_of_the_inventory_is_read(role: Path) -> None:
    used = {
        name
        for path in files(role)
        for name in INVENTORY
        if re.search(rf"\b{name}\b[.\[]", path.read_text())
    }
    assert used <= options(role).keys()


@each_role
def test_an_option_bears_the_name_of_its_role(role: Path) -> None:
    own = options(role).keys() - {*INVENTORY}
    assert [name for name in own if not name.startswith(f"{role.name}_")] == []


def test_every_entry_point_that_is_used_has_its_options_described() -> None:
    """`tasks_from: X` of a role R needs argument_specs.X, or its options go unchecked."""
    texts = [path.read_text() for path in ANSIBLE.rglob("*.yml")]
    used = {
        pair for text in texts for pair in re.findall(r"name: (\w+)\n\s+tasks_from: (\w+)", text)
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


def test_every_user_of_a_service_has_a_number_of_its_own() -> None:
    """Without one, a host that gets the service can't be prepared."""
    numbers = read(ANSIBLE / "roles" / "base" / "defaults" / "main.yml")["base_user_ids"]
    users = {read(path).get("user") for path in (CONFIGS / "components").glob("*.yaml")} - {None}
    assert users <= numbers.keys()
    assert len({*numbers.values()}) == len(numbers)
