from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from millrace.config import validate
from millrace.cost import (
    GP3,
    HOURS,
    NAT_GATEWAY,
    S3,
    HostGroup,
    PriceTable,
    Quantity,
    estimate,
    load_prices,
    quantities,
)
from millrace.errors import OperatorError
from millrace.paths import CONFIGS
from millrace.views import cost_view

PRICES = load_prices()


def use(*groups: HostGroup, stored: float = 0) -> list[Quantity]:
    return quantities(groups, load_balancers=1, nat_gateways=3, endpoints=6, stored=stored)


def shown(used: list[Quantity], region: str = "us-east-1") -> str:
    page = StringIO()
    Console(width=120, file=page).print(cost_view(estimate(used, region, PRICES)))
    return page.getvalue()


def test_quantities_are_summed_over_the_groups():
    used = use(HostGroup("m7g.large", 3, 100), HostGroup("m7g.large", 2, 20))
    amounts = {each.item: each.amount for each in used}
    assert amounts["m7g.large"] == 5 * HOURS
    assert amounts[GP3] == 340
    assert amounts[NAT_GATEWAY] == 3 * HOURS


def test_what_is_not_used_is_not_listed():
    assert S3 not in {each.item for each in use(HostGroup("m7g.large", 3, 100))}


def test_a_total_is_the_sum_of_quantities_by_prices():
    result = estimate(use(HostGroup("m7g.large", 3, 100)), "us-east-1", PRICES)
    assert result.missing == []
    hours = 3 * 0.0816 + 1 * 0.0225 + 3 * 0.045 + 6 * 0.01
    assert result.known == pytest.approx(HOURS * hours + 300 * 0.08)


def test_quantities_are_counted_in_the_units_of_their_prices():
    for line in estimate(use(HostGroup("m7g.large", 3, 100)), "us-east-1", PRICES).lines:
        assert line.price.unit == line.quantity.unit


def test_a_missing_price_makes_no_total():
    result = estimate(use(HostGroup("x9.huge", 3, 100), stored=50), "us-east-1", PRICES)
    assert result.missing == ["x9.huge", S3]
    assert "no total: 2 prices are missing" in shown(use(HostGroup("x9.huge", 1, 1), stored=5))


def test_another_regions_prices_are_not_used():
    used = use(HostGroup("m7g.large", 3, 100))
    assert len(estimate(used, "eu-central-1", PRICES).missing) == len(used)
    assert "no total: 5 prices are missing" in shown(used, "eu-central-1")


def test_the_view_says_what_the_prices_are():
    text = shown(use(HostGroup("m7g.large", 3, 100)))
    assert "total 361.48 USD: list prices of us-east-1" in text
    assert "2026-01-19" in text


@pytest.mark.parametrize(("date", "price"), [(None, 1.0), ("2026", None)])
def test_a_price_without_a_date_is_refused(date, price):
    wrong = {"source": "somebody told me", "date": date, "unit": "hours", "prices": {"x": price}}
    table = {"summary": "s", "region": "r", "currency": "c", "lists": [wrong]}
    with pytest.raises(OperatorError, match=r"prices.yaml: lists.0: .*a price without a date"):
        validate(PriceTable, table, CONFIGS / "prices.yaml")


@given(st.integers(1, 50), st.integers(1, 50), st.floats(0, 1e5))
def test_more_never_costs_less(hosts, more, disk):
    less = estimate(use(HostGroup("m7g.large", hosts, disk)), "us-east-1", PRICES)
    larger = estimate(use(HostGroup("m7g.large", hosts + more, disk)), "us-east-1", PRICES)
    assert larger.known > less.known
