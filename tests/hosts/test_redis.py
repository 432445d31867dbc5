"""One master that two replicas follow, and Sentinels that agree on it."""


def replication(connection, port: int) -> dict[str, str]:
    lines = connection.check_output(f"redis-cli -p {port} info replication").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_one_master_and_two_replicas(plan, hosts_of):
    port = plan.services["redis"].ports["client"]
    roles = {name: replication(host, port) for name, host in hosts_of("redis").items()}
    masters = [name for name, info in roles.items() if info["role"] == "master"]
    assert len(masters) == 1
    assert roles[masters[0]]["connected_slaves"] == "2"
    replicas = [info for name, info in roles.items() if name != masters[0]]
    assert {info["master_host"] for info in replicas} == {plan.host(masters[0]).address}
    assert {info["master_link_status"] for info in replicas} == {"up"}


def test_sentinels_agree_on_the_master_and_have_a_quorum(plan, hosts_of):
    port = plan.services["redis_sentinel"].ports["client"]
    seen = set()
    for host in hosts_of("redis_sentinel").values():
        ask = f"redis-cli -p {port} --raw sentinel"
        seen.add(host.check_output(f"{ask} get-master-addr-by-name millrace"))
        assert host.check_output(f"{ask} ckquorum millrace").startswith("OK 3 usable")
    assert len(seen) == 1


def test_tuned_settings_are_in_force(plan, hosts_of):
    settings = plan.services["redis"].settings["redis.conf"]
    port = plan.services["redis"].ports["client"]
    for host in hosts_of("redis").values():
        for key in ("appendonly", "min-replicas-to-write", "min-replicas-max-lag"):
            answer = host.check_output(f"redis-cli -p {port} --raw config get {key}")
            assert answer.splitlines() == [key, str(settings[key])]


def test_a_key_written_to_the_master_is_on_the_replicas(plan, hosts_of):
    port = plan.services["redis"].ports["client"]
    hosts = hosts_of("redis")
    master = next(h for h in hosts.values() if replication(h, port)["role"] == "master")
    master.check_output(f"redis-cli -p {port} set millrace:test 1 ex 60")
    assert master.check_output(f"redis-cli -p {port} wait 2 5000") == "2"
