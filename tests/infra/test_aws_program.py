"""What the AWS environments declare, seen by Pulumi's mocks: no engine, no plugin, no AWS."""

import json
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks

from infra import certificates, keys
from infra.aws import edge, program, region
from infra.aws.firewall import PUBLIC
from infra.aws.first_boot import user_data
from infra.aws.permissions import load_permissions
from infra.aws.region import ADDRESSES, DISKS, NETWORKS, QUOTAS, VCPUS, Region, problems
from millrace.common.errors import OperatorError
from millrace.config import OPERATOR, PRODUCERS, READERS, THIS_MACHINE, SignIn
from millrace.plan import Plan, load_plan

ACCOUNT = "123456789012"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]
MANIFEST = {"store": {"version": "1", "file": "store-1.tar", "sha256": "0" * 64}}
PERMISSIONS = load_permissions()
ARN_OF = "arn:aws:test:us-east-1:123456789012:"


class Account(Mocks):
    """An account in which everything is offered everywhere; it remembers what was declared."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, dict[str, Any]]] = {}

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        kind = args.typ.rpartition(":")[2]
        if args.typ.startswith(("aws:", "pulumi:providers:")):
            self.made.setdefault(kind, {})[args.name] = args.inputs
        computed = {
            "arn": ARN_OF + args.name,
            "dnsName": f"{args.name}.example.com",
            "keyId": f"{args.name}-key",
            "zoneId": f"{args.name}-zone",
            "allocationId": f"{args.name}-allocation",
        }
        return f"{args.name}-id", computed | args.inputs

    def call(self, args: MockCallArgs) -> dict[str, Any]:
        question = args.token.rpartition(":")[2]
        assert question in PERMISSIONS["questions"], f"{question}: permissions.yaml lacks it"
        types = args.args.get("filters", [{}])[0].get("values", [])
        pairs = [(kind, zone) for kind in types for zone in ZONES]
        return {
            "getCallerIdentity": {"accountId": ACCOUNT},
            "getAvailabilityZones": {"names": ZONES},
            "getAmi": {"id": "ami-0123", "architecture": "x86_64"},
            "getVpcs": {"ids": []},
            "getServiceQuota": {"value": 1000.0},
            "getInstanceTypeOfferings": {
                "instanceTypes": [kind for kind, _ in pairs],
                "locations": [zone for _, zone in pairs],
            },
        }[question]


SIGN_IN = SignIn(
    issuer="https://id.example.com",
    authorization_endpoint="https://id.example.com/authorize",
    token_endpoint="https://id.example.com/token",
    user_info_endpoint="https://id.example.com/userinfo",
    client_id="millrace",
    client_secret_file="oidc",
    everybody=["insights"],
    groups={"sre": ["operations"]},
)


Declared = tuple[dict[str, dict[str, dict[str, Any]]], dict[str, Any]]


@pytest.fixture(scope="module")
def declare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Declared]:
    """Runs the program on an environment: what it declared by type and name, and exported."""
    folder = tmp_path_factory.mktemp("aws")
    (folder / "store-1.tar").write_text("a distribution")
    (folder / "secrets").mkdir()
    (folder / "secrets" / SIGN_IN.client_secret_file).write_text("s3cret\n")
    done: dict[str, Declared] = {}

    def run(
        name: str,
        outside: dict[str, list[str]] | None = None,
        sign_in: SignIn | None = None,
        account_id: str | None = None,
    ) -> Declared:
        as_it_ships = outside is None and sign_in is None and account_id is None
        if name in done and as_it_ships:
            return done[name]
        plan = load_plan(name)
        assert plan.aws
        own = {"sign_in": sign_in, "account": account_id}
        plan = plan.model_copy(update={"aws": plan.aws.model_copy(update=own)})
        if outside is not None:
            network = plan.network.model_copy(update={"outside": outside})
            plan = plan.model_copy(update={"network": network})
        account, exported = Account(), {}

        def export(key: str, value: Any) -> None:
            pulumi.Output.from_input(value).apply(lambda known: exported.__setitem__(key, known))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keys, "stack_state", lambda stack: folder)
            for module in (certificates, edge):
                patch.setattr(module, "stack_secrets", lambda stack: folder / "secrets")
            patch.setattr(program, "ARTIFACTS", folder)
            patch.setattr(pulumi, "export", export)
            pulumi.runtime.set_mocks(account)
            pulumi.runtime.test(lambda: program.declare(plan, MANIFEST))()
        if as_it_ships:
            done[name] = account.made, exported
        return account.made, exported

    return run


@pytest.fixture(params=["dev", "staging", "prod"])
def declared(request, declare) -> tuple[Plan, dict[str, dict[str, dict[str, Any]]]]:
    return load_plan(request.param), declare(request.param)[0]


def test_what_an_operator_must_be_allowed_is_what_the_program_makes(declare) -> None:
    made = {kind for name in ("dev", "staging", "prod") for kind in declare(name)[0]}
    made |= declare("dev", sign_in=SIGN_IN)[0].keys()
    documented = {resource.partition(":")[2] for resource in PERMISSIONS["resources"]}
    assert documented == made - {"aws"}  # the provider itself


def test_nobody_s_credentials_for_another_account_do_anything(declare) -> None:
    """Also not those of who runs `pulumi destroy`, for which the program isn't run."""
    plan = load_plan("dev")
    provider = declare("dev", account_id=ACCOUNT)[0]["aws"][plan.cluster]
    assert json.loads(provider["allowedAccountIds"]) == [ACCOUNT]


def test_hosts_are_where_and_what_the_plan_says(declared) -> None:
    plan, made = declared
    assert made["Instance"].keys() == {host.name for host in plan.hosts}
    for host in plan.hosts:
        instance = made["Instance"][host.name]
        assert instance["privateIp"] == host.address
        assert instance["subnetId"] == f"private-{host.zone}-id"
        assert instance["instanceType"] == plan.aws.instances[host.name]
        assert instance["vpcSecurityGroupIds"] == [f"{host.group}-id"]
        assert instance["iamInstanceProfile"] == f"{plan.cluster}-{host.group}"
        assert instance["placementGroup"] == f"{plan.cluster}-{host.group}-spread-1"
    subnets = made["Subnet"]
    placed = Counter(
        subnets[i["subnetId"].removesuffix("-id")]["availabilityZone"]
        for i in made["Instance"].values()
    )
    assert placed == Counter(plan.aws.subnet(host.zone).availability_zone for host in plan.hosts)


def test_hosts_of_a_group_share_no_rack(declared) -> None:
    _, made = declared
    groups = {group["name"]: group["strategy"] for group in made["PlacementGroup"].values()}
    assert set(groups.values()) == {"spread"}
    assert {instance["placementGroup"] for instance in made["Instance"].values()} == set(groups)


def test_hosts_are_closed_hardened_and_recovered(declared) -> None:
    _, made = declared
    for instance in made["Instance"].values():
        assert instance["associatePublicIpAddress"] is False
        assert instance["metadataOptions"]["httpTokens"] == "required"
        assert instance["metadataOptions"]["httpPutResponseHopLimit"] == 1
        assert instance["maintenanceOptions"] == {"autoRecovery": "default"}
        assert instance["disableApiTermination"] is True
        assert instance["forceDestroy"] is True  # `down` is asked for by name
        assert instance["rootBlockDevice"]["encrypted"] is True
        assert "keyName" not in instance
    assert not any(subnet["mapPublicIpOnLaunch"] for subnet in made["Subnet"].values())


def test_volumes_stand_in_their_hosts_zone_encrypted_and_attached(declared) -> None:
    plan, made = declared
    for host in plan.hosts:
        for volume in host.volumes:
            disk = made["Volume"][volume.name]
            planned = plan.aws.volumes[volume.name]
            assert disk["availabilityZone"] == plan.aws.subnet(host.zone).availability_zone
            assert disk["encrypted"] is True
            assert disk["kmsKeyId"] == ARN_OF + "key"
            assert (disk["type"], disk["size"]) == ("gp3", planned.disk.size)
            attached = made["VolumeAttachment"][volume.name]
            assert attached["instanceId"] == f"{host.name}-id"
            assert attached["volumeId"] == f"{volume.name}-id"
    assert len(made["Volume"]) == sum(len(host.volumes) for host in plan.hosts)


def test_rules_are_the_plans_edges_and_the_balancers_doors(declared) -> None:
    plan, made = declared
    rules = made["SecurityGroupIngressRule"].values()
    group_of = {READERS: PUBLIC, PRODUCERS: PUBLIC}
    between = {
        (
            rule["referencedSecurityGroupId"],
            rule["securityGroupId"],
            rule["ipProtocol"],
            rule["fromPort"],
            rule["toPort"],
        )
        for rule in rules
        if "referencedSecurityGroupId" in rule
    }
    assert between == {
        (f"{group_of.get(e.client, e.client)}-id", f"{e.server}-id", e.protocol, e.first, e.last)
        for e in plan.edges
        if e.client not in (OPERATOR, THIS_MACHINE)
    }
    assert not plan.sources(OPERATOR) + plan.sources(THIS_MACHINE)
    world = [rule for rule in rules if "referencedSecurityGroupId" not in rule]
    assert {(rule["securityGroupId"], rule["cidrIpv4"]) for rule in world} == {
        ("public-id", "0.0.0.0/0")
    }
    assert [(rule["fromPort"], rule["toPort"]) for rule in world] == [(443, 443), (8444, 8444)]
    assert {rule["ipProtocol"] for rule in world} == {"tcp"}
    inline = [group["ingress"] for group in made["SecurityGroup"].values() if "ingress" in group]
    vpc = IPv4Network(plan.network.subnet)
    for source in (cidr for (rule,) in inline for cidr in rule["cidrBlocks"]):
        assert IPv4Network(source).subnet_of(vpc)


def test_who_comes_from_outside_comes_from_the_environments_cidrs(declare) -> None:
    office, shop, partner = "203.0.113.0/28", "198.51.100.7/32", "192.0.2.0/24"
    outside = {OPERATOR: [office], PRODUCERS: [shop], READERS: [partner], THIS_MACHINE: []}
    made, _ = declare("dev", outside)
    rules = [r for r in made["SecurityGroupIngressRule"].values() if "cidrIpv4" in r]
    plan = load_plan("dev")
    cidr_of = {OPERATOR: office}
    wanted = {
        (cidr_of[e.client], f"{e.server}-id", e.first, e.last)
        for e in plan.edges
        if e.client in cidr_of
    }
    assert {
        (r["cidrIpv4"], r["securityGroupId"], r["fromPort"], r["toPort"]) for r in rules
    } == wanted | {
        (partner, f"{PUBLIC}-id", 443, 443),
        (shop, f"{PUBLIC}-id", 8444, 8444),
    }


def test_names_are_ones_that_aws_accepts(declared) -> None:
    _, made = declared
    for name in (g["name"] for g in made["SecurityGroup"].values()):
        assert not name.startswith("sg-")
        assert len(name) <= 255
    for kind in ("LoadBalancer", "TargetGroup"):
        assert all(len(each["name"]) <= 32 for each in made[kind].values())
    assert all(len(role["name"]) <= 64 for role in made["Role"].values())
    for bucket in made["Bucket"].values():
        assert bucket["bucket"] == bucket["bucket"].lower()
        assert 3 <= len(bucket["bucket"]) <= 63
        assert bucket["bucket"].endswith(ACCOUNT)
    allowed = set(" ._-:/()#,@[]+=&;{}!$*")  # EC2 API, AuthorizeSecurityGroupIngress
    for rule in made["SecurityGroupIngressRule"].values():
        assert all(c.isalnum() or c in allowed for c in rule["description"])
        assert len(rule["description"]) <= 255


def test_what_bears_tags_names_cluster_and_stack(declared) -> None:
    plan, made = declared
    tagged = 0
    for kind, each in made.items():
        for name, inputs in each.items():
            if "tags" in inputs:
                tagged += 1
                assert inputs["tags"]["millrace.cluster"] == plan.cluster, (kind, name)
                assert inputs["tags"]["millrace.stack"] == plan.environment
                assert inputs["tags"]["Name"].startswith(plan.cluster)
    for kind in ("Instance", "Volume", "Subnet", "SecurityGroup", "Bucket", "Key", "Role"):
        assert all("tags" in inputs for inputs in made[kind].values()), kind
    for host in plan.hosts:
        tags = made["Instance"][host.name]["tags"]
        assert (tags["millrace.host"], tags["millrace.zone"]) == (host.name, host.zone)
    assert tagged > len(plan.hosts)


def test_buckets_are_private_versioned_encrypted_and_tls_only(declared) -> None:
    _, made = declared
    for name in made["Bucket"]:
        assert set(made["BucketPublicAccessBlock"][name].values()) == {True, f"{name}-id"}
        assert made["BucketVersioning"][name]["versioningConfiguration"] == {"status": "Enabled"}
        (rule,) = made["BucketServerSideEncryptionConfiguration"][name]["rules"]
        default = rule["applyServerSideEncryptionByDefault"]
        assert default == {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": ARN_OF + "key"}
        (refuse,) = json.loads(made["BucketPolicy"][name]["policy"])["Statement"]
        assert refuse["Effect"] == "Deny"
        assert refuse["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        assert refuse["Resource"] == [ARN_OF + name, ARN_OF + name + "/*"]
        assert made["BucketLifecycleConfiguration"][name]["rules"]
    # An age would take files that a table still consists of.
    rules = made["BucketLifecycleConfiguration"]["archive"]["rules"]
    assert [rule for rule in rules if "expiration" in rule] == []
    assert made["BucketObjectv2"]["store-1.tar"]["bucket"].endswith(f"artifacts-{ACCOUNT}")


def test_each_group_may_only_do_what_its_services_need(declared) -> None:
    plan, made = declared
    for group in {host.group for host in plan.hosts}:
        statements = json.loads(made["RolePolicy"][group]["policy"])["Statement"]
        assert {s["Effect"] for s in statements} == {"Allow"}
        everywhere = {a for s in statements if s["Resource"] == "*" for a in s["Action"]}
        assert {action.partition(":")[0] for action in everywhere} == {"ssm", "ssmmessages"}
        assert not any("*" in action for s in statements for action in s["Action"])
        writes = any("s3:PutObject" in s["Action"] for s in statements)
        runs_jobs = any(h.group == group for h in plan.hosts_of("nodemanager"))
        assert writes == runs_jobs


def test_what_is_refused_is_logged_by_a_role_that_can_do_nothing_else(declared) -> None:
    plan, made = declared
    [log] = made["FlowLog"].values()
    assert log["trafficType"] == "REJECT"
    group = made["LogGroup"]["refused"]
    assert group["name"] == f"/{plan.cluster}/refused"
    assert group["retentionInDays"] == 30
    [statement] = json.loads(made["RolePolicy"]["flow-log"]["policy"])["Statement"]
    assert {action.partition(":")[0] for action in statement["Action"]} == {"logs"}
    assert len({arn.removesuffix(":*") for arn in statement["Resource"]}) == 1


def test_each_host_may_write_to_the_group_of_hosts_logs_alone(declared) -> None:
    plan, made = declared
    group = made["LogGroup"]["hosts"]
    assert plan.aws
    assert group["name"] == plan.aws.log_group
    assert group["retentionInDays"] == 30
    for hosts in {host.group for host in plan.hosts}:
        statements = json.loads(made["RolePolicy"][hosts]["policy"])["Statement"]
        [writing] = [s for s in statements if "logs:PutLogEvents" in s["Action"]]
        assert writing["Resource"] == [f"{ARN_OF}hosts", f"{ARN_OF}hosts:*"]


def test_names_are_those_of_local(declared) -> None:
    plan, made = declared
    (zone,) = made["Zone"].values()
    assert zone["vpcs"] == [{"vpcId": "vpc-id"}]
    assert {(r["name"], *r["records"]) for r in made["Record"].values()} == {
        (host.name, host.address) for host in plan.hosts
    }
    (search,) = made["VpcDhcpOptions"].values()
    assert search["domainName"] == zone["name"] == f"{plan.cluster}.internal"


def test_each_zone_has_its_way_out(declared) -> None:
    plan, made = declared
    assert made["NatGateway"].keys() == {f"nat-{zone}" for zone in plan.aws.nat}
    for zone in plan.zones:
        gateway = made["Route"][f"private-{zone}-out"]["natGatewayId"]
        assert gateway == f"nat-{plan.aws.nat_of(zone)}-id"
        assert "gatewayId" not in made["Route"][f"private-{zone}-out"]
    endpoints = {e["serviceName"].rpartition(".")[2] for e in made["VpcEndpoint"].values()}
    assert endpoints == {"s3", "ssm", "ssmmessages", "ec2messages", "logs"}


def test_the_balancer_speaks_tls_and_reaches_every_proxy_by_it(declared) -> None:
    plan, made = declared
    ports = plan.services["edge_proxy"].ports
    for name, port in (("insights", 443), ("intake", 8444)):
        listener, group = made["Listener"][name], made["TargetGroup"][name]
        assert (listener["port"], listener["protocol"]) == (port, "HTTPS")
        assert listener["certificateArn"] == ARN_OF + "own"
        assert (group["port"], group["protocol"]) == (ports[name], "HTTPS")
        assert group["healthCheck"]["protocol"] == "HTTPS"
        reached = [t for n, t in made["TargetGroupAttachment"].items() if n.startswith(name)]
        assert {(t["targetId"], t["port"]) for t in reached} == {
            (f"{host.name}-id", ports[name]) for host in plan.hosts_of("edge_proxy")
        }
    (balancer,) = made["LoadBalancer"].values()
    assert balancer["subnets"] == [f"public-{zone}-id" for zone in plan.zones]


def test_people_sign_in_where_the_environment_says_by_whom_and_programs_bring_a_key(
    declare,
) -> None:
    made, exported = declare("dev", sign_in=SIGN_IN)
    actions = made["Listener"]["insights"]["defaultActions"]
    first, second = actions["value"]  # a secret in the state
    assert (first["type"], second["type"]) == ("authenticate-oidc", "forward")
    assert first["order"] < second["order"]
    assert first["authenticateOidc"]["clientSecret"] == "s3cret"
    assert [action["type"] for action in made["Listener"]["intake"]["defaultActions"]] == [
        "forward"
    ]
    (rule,) = made["ListenerRule"].values()
    (condition,) = rule["conditions"]
    assert condition["httpHeader"] == {"httpHeaderName": "Authorization", "values": ["Bearer *"]}
    told = exported["inventory"]["all"]["vars"]["millrace"]["sign_in"]
    assert told["balancer"] == ARN_OF + "edge"
    assert told["scopes"]["everybody"] == ["insights"]


def test_nobody_signs_in_unless_it_is_said(declared) -> None:
    _, made = declared
    assert "ListenerRule" not in made
    for listener in made["Listener"].values():
        assert [action["type"] for action in listener["defaultActions"]] == ["forward"]


def test_alarms_watch_what_prometheus_cannot_see(declared) -> None:
    plan, made = declared
    alarms = made["MetricAlarm"].values()
    assert Counter(a["metricName"] for a in alarms) == dict.fromkeys(
        (
            "StatusCheckFailed_System",
            "StatusCheckFailed_Instance",
            "StatusCheckFailed_AttachedEBS",
        ),
        len(plan.hosts),
    )
    assert {a["dimensions"]["InstanceId"] for a in alarms} == {f"{h.name}-id" for h in plan.hosts}


def test_the_inventory_has_the_groups_of_local(declare) -> None:
    _, exported = declare("dev")
    inventory = exported["inventory"]
    local, dev = load_plan("local"), load_plan("dev")
    groups = inventory.keys() - {"all", "_meta"}
    of_local = {g for h in local.hosts for g in (h.group, f"zone_{h.zone}", *h.services)}
    assert groups == of_local | {"cloudwatch_agent"}
    for host in dev.hosts:
        found = inventory["_meta"]["hostvars"][host.name]
        assert found["ansible_host"] == host.address
        assert found["machine_volumes"] == [
            {"path": v.path, "id": f"{v.name}-id"} for v in host.volumes
        ]
    variables = inventory["all"]["vars"]["millrace"]
    assert variables["artifacts_url"] == (
        f"https://millrace-dev-artifacts-{ACCOUNT}.s3.us-east-1.amazonaws.com"
    )


# --- what AWS would refuse half-way, told before the first resource -------------------------------


def offering(plan: Plan, **changes: Any) -> Region:
    kinds = set(plan.aws.instances.values())
    region = {
        "account": ACCOUNT,
        "zones": frozenset(ZONES),
        "offered": frozenset((kind, zone) for kind in kinds for zone in ZONES),
        "image": "ami-0123",
        "architecture": "x86_64",
        "networks": {},
        "quotas": {quota.code: 1000.0 for quota in QUOTAS},
    }
    return Region(**region | changes)


def test_a_region_that_has_everything_is_no_problem() -> None:
    plan = load_plan("dev")
    assert list(problems(plan, offering(plan))) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"account": "210987654321"}, "credentials of account 210987654321, not of 123456789012"),
        ({"zones": frozenset(ZONES[:2])}, "us-east-1c isn't available to account 123456789012"),
        ({"architecture": "arm64"}, "ami-0123 is for arm64, the instance types are x86_64"),
        ({"offered": frozenset()}, "instance type t3.medium isn't offered in us-east-1a"),
        (
            {"networks": {"vpc-9": IPv4Network("10.64.128.0/20")}},
            "10.64.0.0/16 overlaps 10.64.128.0/20 of vpc-9",
        ),
        (
            {"quotas": {quota.code: 1000.0 for quota in QUOTAS} | {VCPUS.code: 5.0}},
            "38 vCPUs of running on-demand standard instances are needed, and the account may"
            " have 5 in us-east-1: aws service-quotas request-service-quota-increase"
            " --service-code ec2 --quota-code L-1216C47A --desired-value 38",
        ),
    ],
)
def test_a_region_that_lacks_something(changes, complaint) -> None:
    plan = load_plan("dev")
    assert plan.aws
    aws = plan.aws.model_copy(update={"account": ACCOUNT})
    plan = plan.model_copy(update={"aws": aws})
    assert complaint in "\n".join(problems(plan, offering(plan, **changes)))
    with pytest.raises(OperatorError) as refused:
        region.refuse_problems(plan, offering(plan, **changes))
    assert "nothing was created or changed" in str(refused.value.hint)


def test_what_a_new_account_lacks_for_prod_is_told() -> None:
    """By the defaults of the General Reference; of vCPUs a new account may have 5."""
    defaults = {VCPUS.code: 5.0, ADDRESSES.code: 5.0, NETWORKS.code: 5.0, DISKS.code: 50.0}
    plan = load_plan("prod")
    told = list(problems(plan, offering(plan, quotas=defaults)))
    assert [line.split(" are needed")[0] for line in told] == [
        "quota: 240 vCPUs of running on-demand standard instances",
        "quota: 142 TiB of gp3 volumes",
    ]


def test_only_hosts_of_the_plan_can_be_renewed() -> None:
    plan = load_plan("dev")
    assert program.renewed(plan, "kafka-1 kafka-2") == {"kafka-1", "kafka-2"}
    with pytest.raises(OperatorError, match="there is no host kafka-9 in dev"):
        program.renewed(plan, "kafka-9")


def test_first_boot_is_yaml_that_cloud_init_reads() -> None:
    import yaml

    plan = load_plan("dev")
    text = user_data(plan, plan.host("kafka-1"), "us-east-1", "ssh-ed25519 AAAA test")
    assert text.startswith("#cloud-config\n")
    content = yaml.safe_load(text)
    assert content["hostname"] == "kafka-1"
    assert content["users"][0]["ssh_authorized_keys"] == ["ssh-ed25519 AAAA test"]
    assert len(text) < 16384  # EC2's limit
