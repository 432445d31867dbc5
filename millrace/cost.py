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

from millrace.config import Model, read_yaml, validate
from millrace.paths import CONFIGS

# 8,760 hours of a year by 12, as AWS Pricing Calculator counts a month.
HOURS = 730

# Items of the price table besides instance types.
GP3 = "gp3"
S3 = "S3 Standard"
LOAD_BALANCER = "network load balancer"
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
class HostGroup:
    """Equal hosts; ``disk`` is GiB of all gp3 volumes of one of them, its root volume included."""

    instance_type: str
    hosts: int
    disk: float


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


def quantities(
    groups: Iterable[HostGroup],
    *,
    load_balancers: int,
    nat_gateways: int,
    endpoints: int,
    stored: float,
) -> list[Quantity]:
    """A month's use.

    Args:
        groups: the hosts.
        load_balancers: network load balancers.
        nat_gateways: one for each zone that has its own.
        endpoints: interface endpoints, counted once for each zone they stand in.
        stored: GiB in all buckets.
    """
    groups = list(groups)
    hosts: Counter[str] = Counter()
    for group in groups:
        hosts[group.instance_type] += group.hosts
    used = [
        *(_hours(instance_type, number) for instance_type, number in sorted(hosts.items())),
        Quantity(GP3, fsum(group.hosts * group.disk for group in groups), "GiB-months"),
        _hours(LOAD_BALANCER, load_balancers),
        _hours(NAT_GATEWAY, nat_gateways),
        _hours(ENDPOINT, endpoints),
        Quantity(S3, stored, "GiB-months"),
    ]
    return [quantity for quantity in used if quantity.amount]


def estimate(used: Iterable[Quantity], region: str, prices: PriceTable) -> Estimate:
    """Each quantity with its price. Another region's prices aren't guesses of this one's."""
    known = region == prices.region
    lines = [Line(quantity, prices[quantity.item] if known else None) for quantity in used]
    return Estimate(lines, region, prices)


def _hours(item: str, number: int) -> Quantity:
    return Quantity(item, number * HOURS, "hours")
