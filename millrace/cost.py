"""What an environment costs in a month: quantities times the list prices of configs/prices.yaml.

Pure arithmetic. A price that the table doesn't have stays unknown, and a sum with an unknown in it
isn't a total.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum

from pydantic import Field, NonNegativeFloat, model_validator

from millrace.common.paths import CONFIGS
from millrace.config import INCLUDED_IOPS, INCLUDED_THROUGHPUT, Model, read_yaml, validate
from millrace.plan.aws import ENDPOINTS, AwsPlan

# 8,760 hours of a year by 12, as AWS Pricing Calculator counts a month.
HOURS = 730

# Items of the price table besides instance types.
GP3 = "gp3"
GP3_IOPS = f"gp3 IOPS above {INCLUDED_IOPS:,}"
GP3_THROUGHPUT = f"gp3 MiB/s above {INCLUDED_THROUGHPUT}"
LOAD_BALANCER = "application load balancer"
NAT_GATEWAY = "NAT gateway"
ENDPOINT = "interface endpoint"


@dataclass(frozen=True)
class Price:
    amount: float
    unit: str
    date: str


class PriceList(Model):
    """Prices from one page; ``date`` as precise as the page gives it."""

    source: str = Field(min_length=10)
    date: str | None = Field(pattern=r"^\d{4}(-\d{2}){0,2}$")
    unit: str
    prices: dict[str, NonNegativeFloat | None] = Field(min_length=1)

    @model_validator(mode="after")
    def _dated(self) -> "PriceList":
        if any((price is None) != (self.date is None) for price in self.prices.values()):
            raise ValueError("a price without a date, or a date without a price")
        return self


class PriceTable(Model):
    summary: str
    region: str
    currency: str
    lists: list[PriceList]

    def __getitem__(self, item: str) -> Price | None:
        return self._prices.get(item)

    @cached_property
    def _prices(self) -> Mapping[str, Price]:
        return {
            item: Price(amount, each.unit, str(each.date))
            for each in self.lists
            for item, amount in each.prices.items()
            if amount is not None
        }


@dataclass(frozen=True)
class Quantity:
    """What is used of an item of the price table in a month."""

    item: str
    amount: float
    unit: str


@dataclass(frozen=True)
class Line:
    quantity: Quantity
    price: Price | None

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.quantity.amount * self.price.amount


@dataclass(frozen=True)
class Estimate:
    lines: list[Line]
    region: str
    prices: PriceTable

    @property
    def missing(self) -> list[str]:
        return [line.quantity.item for line in self.lines if line.price is None]

    @property
    def known(self) -> float:
        """The sum of what has a price: the total only if nothing is missing."""
        return fsum(line.cost or 0 for line in self.lines)


def load_prices() -> PriceTable:
    path = CONFIGS / "prices.yaml"
    return validate(PriceTable, read_yaml(path), path)


def quantities(aws: AwsPlan) -> list[Quantity]:
    """A month's use: hosts, their disks, and the ways in and out. Buckets hold little."""
    hosts = Counter(aws.instances.values())
    volumes = [volume.disk for volume in aws.volumes.values()]
    disks = [aws.root_disk] * len(aws.instances) + volumes
    zones = {subnet.zone for subnet in aws.subnets}
    used = [
        *(_hours(instance_type, number) for instance_type, number in sorted(hosts.items())),
        Quantity(GP3, sum(disk.size for disk in disks), "GiB-months"),
        Quantity(GP3_IOPS, sum(disk.iops - INCLUDED_IOPS for disk in disks), "IOPS-months"),
        Quantity(
            GP3_THROUGHPUT,
            sum(disk.throughput - INCLUDED_THROUGHPUT for disk in disks),
            "MiB/s-months",
        ),
        _hours(LOAD_BALANCER, 1),
        _hours(NAT_GATEWAY, len(aws.nat)),
        _hours(ENDPOINT, len(ENDPOINTS) * len(zones)),
    ]
    return [quantity for quantity in used if quantity.amount]


def estimate(used: Iterable[Quantity], region: str, prices: PriceTable) -> Estimate:
    """Prices each quantity. Another region's prices aren't guesses of this one's."""
    known = region == prices.region
    lines = [Line(quantity, prices[quantity.item] if known else None) for quantity in used]
    return Estimate(lines, region, prices)


def _hours(item: str, number: int) -> Quantity:
    return Quantity(item, number * HOURS, "hours")
