"""What a change does to what exists: replaced, changed in place, or left alone."""

import pytest
from pulumi.dynamic import ResourceProvider
from pulumi.dynamic.dynamic import serialize_provider

from infra import docker_provider as provider
from infra import docker_resources as resources

# provider, what it takes, what a change replaces, what is changed in place
TABLES = {
    "network": (
        provider.NetworkProvider(),
        resources.NetworkProps,
        provider.NETWORK_REPLACES,
        {},
    ),
    "volume": (provider.VolumeProvider(), resources.VolumeProps, provider.VOLUME_REPLACES, {}),
    "hosts-file": (
        provider.HostsFileProvider(),
        resources.HostsFileProps,
        provider.HOSTS_FILE_REPLACES,
        provider.HOSTS_FILE_UPDATES,
    ),
    "host": (
        provider.HostProvider(),
        resources.HostProps,
        provider.HOST_REPLACES,
        provider.HOST_UPDATES,
    ),
    "artifact-server": (
        provider.ArtifactServerProvider(),
        resources.ArtifactServerProps,
        provider.ARTIFACT_SERVER_REPLACES,
        provider.ARTIFACT_SERVER_UPDATES,
    ),
}
CHANGES = [
    pytest.param(table[0], list(table[2] | table[3]), key, key in table[2], id=f"{kind}.{key}")
    for kind, table in TABLES.items()
    for key in table[2] | table[3]
]

HOST_REPLACED_BY = {
    "name", "cluster", "stack", "image", "network", "network_name", "address",
    "hostname", "hosts_file", "volumes", "sysctls",
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_every_property_is_classified_once(kind: str) -> None:
    _, properties, replaces, updates = TABLES[kind]
    assert replaces.keys() | updates.keys() == properties.__annotations__.keys()
    assert not replaces.keys() & updates.keys()


@pytest.mark.parametrize(("made_by", "properties", "changed", "replaces"), CHANGES)
def test_diff(made_by: ResourceProvider, properties: list[str], changed: str, replaces: bool):
    olds = dict.fromkeys(properties, "old")
    diff = made_by.diff("id", olds, olds | {changed: "new"})
    assert diff.changes is True
    assert diff.replaces == ([changed] if replaces else [])
    assert diff.delete_before_replace is True


def test_what_replaces_a_host_is_this_and_nothing_else() -> None:
    assert provider.HOST_REPLACES.keys() == HOST_REPLACED_BY


@pytest.mark.parametrize("kind", TABLES)
def test_equal_properties_are_no_change(kind: str) -> None:
    olds = {"name": "x", provider.PROVIDER_KEY: "the toolkit's old version"}
    news = {"name": "x", provider.PROVIDER_KEY: "the toolkit's new version"}
    diff = TABLES[kind][0].diff("id", olds, news)
    assert diff.changes is False
    assert diff.replaces == []


@pytest.mark.parametrize("kind", TABLES)
def test_providers_are_pickled_by_name(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So an upgraded toolkit shows no difference and old resources get the new code."""
    made_by = TABLES[kind][0]
    before = serialize_provider(made_by)
    monkeypatch.setattr(type(made_by), "read", lambda self, id_, props: None)
    assert serialize_provider(made_by) == before
    assert len(before) < 200
