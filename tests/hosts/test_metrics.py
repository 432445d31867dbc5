"""What a scrape gets of the running cluster's own programs."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

SCRAPE = (
    "import sys, urllib.request as u;"
    "sys.stdout.write(u.urlopen(sys.argv[1], timeout=10).read().decode())"
)


@pytest.fixture(scope="module")
def scrape(plan, hosts_of):
    def scrape(service):
        """Host → {(name, label's value, …): value}."""
        url = f"http://127.0.0.1:{plan.services[service].ports['metrics']}/metrics"
        return {
            name: {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(
                    host.check_output("python3 -c %s %s", SCRAPE, url)
                )
                for sample in family.samples
            }
            for name, host in hosts_of(service).items()
        }

    return scrape


def test_every_edge_tells_how_far_each_job_is(plan, scrape):
    for found in scrape("insight_api").values():
        assert found["millrace_api_store_up",] == 1
        for job in plan.jobs:
            assert found["millrace_job_updated_timestamp_seconds", job] > 0
            assert found["millrace_job_batches_total", job] >= 0


def test_every_gateway_tells_who_drives_and_what_lags_and_one_acts(plan, scrape):
    gateways = scrape("job_gateway")
    for found in gateways.values():
        for application in plan.applications:
            assert found["millrace_drivers", application, "leading"] == 1
        for job in plan.jobs:
            assert ("millrace_job_lag_records", job) in found
            assert found["millrace_job_epoch_given", job] > 0
    assert sum(found["millrace_gateway_acting",] for found in gateways.values()) == 1
