from io import StringIO

import pytest

from millrace.cli.views import cost_view
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import CONFIGS
from millrace.config import validate
from millrace.cost import (
    ENDPOINT,
    GP3,
    GP3_IOPS,
    GP3_THROUGHPUT,
    HOURS,
    LOAD_BALANCER,
    NAT_GATEWAY,
    PriceTable,
    estimate,
    load_prices,
    quantities,
)
from millrace.plan import load_plan

PRICES = load_prices()
ON_AWS = ["dev", "staging", "prod"]


def aws(name: str):
    return load_plan(name).aws


def shown(plan) -> str:
    page = StringIO()
    Console(width=120, file=page).print(cost_view(plan))
    return page.getvalue()


def test_quantities_are_those_of_the_plan():
    amounts = {each.item: each.amount for each in quantities(aws("prod"))}
    assert amounts["m7i.2xlarge"] == (9 + 2) * HOURS
    assert amounts[NAT_GATEWAY] == 3 * HOURS
    assert amounts[ENDPOINT] == 4 * 3 * HOURS
    assert amounts[LOAD_BALANCER] == HOURS
    assert amounts[GP3_IOPS] == 9 * 3000 + 3 * 3000
    assert amounts[GP3_THROUGHPUT] == 9 * 375 + 3 * 125 + 6 * 125 + 6 * 125
    coord, brokers, cassandra = 3 * (20 + 20 + 50 + 1), 9 * 7451, 3 * 1863
    others = 3 * 40 + 2 * 100 + 6 * (11264 + 500)
    assert amounts[GP3] == 28 * 30 + coord + brokers + cassandra + others


def test_what_is_not_used_is_not_listed():
    assert GP3_IOPS not in {each.item for each in quantities(aws("dev"))}


@pytest.mark.parametrize("name", ON_AWS)
def test_a_sum_is_that_of_quantities_by_prices_in_the_same_units(name):
    result = estimate(quantities(aws(name)), "us-east-1", PRICES)
    known = [line for line in result.lines if line.price]
    assert all(line.price.unit == line.quantity.unit for line in known)
    expected = sum(line.quantity.amount * line.price.amount for line in known)
    assert result.known == pytest.approx(expected)
    assert len(known) + len(result.missing) == len(result.lines)


def test_a_missing_price_makes_no_total():
    missing = estimate(quantities(aws("dev")), "us-east-1", PRICES).missing
    assert missing == ["t3.micro", LOAD_BALANCER]
    assert "no total: 2 prices are missing" in shown(aws("dev"))


def test_another_regions_prices_are_not_used():
    elsewhere = aws("dev").model_copy(update={"region": "eu-central-1"})
    used = quantities(elsewhere)
    assert len(estimate(used, elsewhere.region, PRICES).missing) == len(used)
    assert f"no total: {len(used)} prices are missing" in shown(elsewhere)


@pytest.mark.parametrize(("date", "price"), [(None, 1.0), ("2026", None)])
def test_a_price_without_a_date_is_refused(date, price):
    wrong = {"source": "somebody told me", "date": date, "unit": "hours", "prices": {"x": price}}
    table = {"summary": "s", "region": "r", "currency": "c", "lists": [wrong]}
    with pytest.raises(OperatorError, match=r"prices.yaml: lists.0: .*a price without a date"):
        validate(PriceTable, table, CONFIGS / "prices.yaml")
