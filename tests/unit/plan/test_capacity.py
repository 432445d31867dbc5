import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.coefficients import COEFFICIENTS
from bench.record import name, read_records
from millrace.cli.views import capacity_view
from millrace.common.console import Console
from millrace.plan.capacity import TB, TIB, Load, load_assumptions, size

ASSUME = load_assumptions()


def test_the_documented_example():
    raw = size(Load(300_000, 150, 7, 1), ASSUME).raw
    assert raw / TB == pytest.approx(27.2, abs=0.05)
    assert raw / TIB == pytest.approx(24.7, abs=0.1)


@given(st.floats(1, 5e6), st.floats(1, 1e4), st.floats(0.1, 60), st.integers(3, 5))
def test_a_capacity_holds_its_load_and_is_highly_available(rate, size_bytes, days, replication):
    load = Load(rate, size_bytes, days, replication)
    capacity = size(load, ASSUME)
    room = capacity.brokers * ASSUME["broker_disk_tb"] * TB * ASSUME["disk_fill"]
    assert capacity.raw <= room
    assert capacity.brokers >= max(3, replication)
    assert capacity.partitions % capacity.brokers == 0
    assert capacity.partitions * ASSUME["partition_mb_per_s"] * 1e6 >= capacity.ingest


@given(st.floats(1, 1e6), st.floats(1, 10))
def test_more_load_never_needs_less(rate, factor):
    less = size(Load(rate, 200, 7, 3), ASSUME)
    more = size(Load(rate * factor, 200, 7, 3), ASSUME)
    assert more.brokers >= less.brokers
    # Not so their partitions: 3 brokers with 2 each have more than 4 with 1.
    assert more.partitions > less.partitions - less.brokers


@pytest.mark.parametrize(
    ("rate", "profile"), [(20_000, "small"), (20_001, "standard"), (400_000, "none")]
)
def test_a_load_is_told_the_smallest_profile_whose_jobs_take_its_peak(rate, profile):
    load = Load(rate, 200, 7, 3)
    most = {"small": 40_000, "standard": 500_000}  # twice as much at the peak
    console = Console(width=200, record=True)
    console.print(capacity_view(load, size(load, ASSUME), {}, ASSUME, most))
    [row] = [line for line in console.export_text().splitlines() if "max_events_per_second" in line]
    assert row.split("│")[2].strip() == profile


def test_what_is_measured_is_what_the_bench_can_find_in_a_record():
    measured = {name for name, one in ASSUME.assumptions.items() if one.measured}
    assert measured == set(COEFFICIENTS)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_what_is_measured_is_as_it_was_recorded(coefficient: str):
    measured = ASSUME.assumptions[coefficient].measured
    assert measured
    records = {name(record): record for record in read_records()}
    recorded = COEFFICIENTS[coefficient](records[measured.record])
    assert ASSUME[coefficient] == pytest.approx(recorded, rel=measured.margin)
