"""Models of ``configs/aws.yaml``: where on AWS, and on what machines and disks."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from millrace.config.model import Model, Name
from millrace_shared.keys import SCOPES

ReaderScope = Annotated[str, Field(pattern=f"^({'|'.join(SCOPES)})$")]


class InstanceType(Model):
    """``memory`` is its nominal MiB."""

    memory: PositiveInt
    vcpus: PositiveInt
    architecture: Literal["x86_64", "arm64"]


# What each gp3 volume has for its price (EBS User Guide, "General Purpose SSD volumes").
INCLUDED_IOPS = 3000
INCLUDED_THROUGHPUT = 125  # MiB/s
MOST_GIBIBYTES = 16384


class Disk(Model):
    """A gp3 volume. ``size`` GiB, ``iops`` per second, ``throughput`` MiB/s.

    The bounds are those of the EBS User Guide, "General Purpose SSD volumes".
    """

    size: int = Field(ge=1, le=MOST_GIBIBYTES)
    iops: int = Field(default=INCLUDED_IOPS, ge=INCLUDED_IOPS, le=16000)
    throughput: int = Field(default=INCLUDED_THROUGHPUT, ge=INCLUDED_THROUGHPUT, le=1000)

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        if self.iops > max(3000, 500 * self.size):
            raise ValueError(f"{self.iops} IOPS need {-(-self.iops // 500)} GiB: 500 for each GiB")
        if self.throughput > self.iops / 4:
            raise ValueError(f"{self.throughput} MiB/s need {4 * self.throughput} IOPS: 4 for each")
        return self


class Image(Model):
    """A machine image: its owner's account and exact name, or the ``id`` of one of your own."""

    owner: str = Field(pattern=r"^(\d{12}|self)$")
    name: str
    id: str | None = Field(default=None, pattern=r"^ami-[0-9a-f]+$")


class State(Model):
    """Where operators share Pulumi's state, and what encrypts its secrets.

    URLs, as Pulumi has them. In both, ``{account}`` and ``{region}`` stand for themselves.
    """

    backend: str
    secrets: str


class SignIn(Model):
    """How people sign in at the load balancer, by OpenID Connect; programs come with a key.

    ``client_secret_file`` is a file of ``.millrace/ENVIRONMENT/secrets/``. Who has signed in may
    read what ``everybody`` says, and what their groups may; ``groups_claim`` is where the provider
    names those.
    """

    issuer: str = Field(pattern=r"^https://")
    authorization_endpoint: str = Field(pattern=r"^https://")
    token_endpoint: str = Field(pattern=r"^https://")
    user_info_endpoint: str = Field(pattern=r"^https://")
    client_id: str
    client_secret_file: Name
    everybody: list[ReaderScope] = []
    groups_claim: str = "groups"
    groups: dict[str, list[ReaderScope]] = {}


class Aws(Model):
    """Where on AWS; ``configs/aws.yaml`` says it for all, an environment may differ."""

    account: str | None = Field(default=None, pattern=r"^\d{12}$")
    state: State
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    zones: dict[Name, str]
    image: Image
    instance_types: dict[str, InstanceType]
    root_disk: Disk
    disks: dict[Name, Disk]
    nat: Literal["shared", "zonal"]
    certificate: str | None = Field(default=None, pattern=r"^arn:aws[a-z-]*:acm:")
    sign_in: SignIn | None = None
