"""The service's bench: who uses the cores, how late results are, what is sustained, reports."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import fresh, goals, report
from bench.cpu import Process, Roles, Usage, parse, service
from bench.fresh import Seen
from bench.record import keep, name, read_records
from bench.search import Trial, highest, verdict
from millrace.common.errors import OperatorError

ROLES = Roles.load()


def process(pid: int, command: str, parent: int = 1, contained: bool = True, cpu: float = 0.0):
    return Process(pid, parent, 100 + pid, cpu, command, contained)


class TestRoles:
    @pytest.mark.parametrize(
        ("command", "role"),
        [
            ("java -cp /opt kafka.Kafka /etc/millrace/kafka-broker/broker.properties", "brokers"),
            ("java kafka.Kafka /etc/x/controller.properties", "controllers"),
            ("java org.apache.spark.executor.YarnCoarseGrainedExecutorBackend --x", "executors"),
            ("java org.apache.spark.deploy.yarn.ApplicationMaster --class x", "drivers"),
            ("java org.apache.cassandra.service.CassandraDaemon", "cassandra"),
            ("/usr/bin/redis-server 198.18.0.41:6379", "redis"),
            ("java org.apache.hadoop.hdfs.server.datanode.DataNode", "hdfs"),
            ("java org.apache.hadoop.yarn.server.nodemanager.NodeManager", "yarn"),
            ("python -m bench.load --rate 8000", "load"),
            ("/opt/millrace/prometheus/bin/prometheus --storage.tsdb.path=/x", "monitoring"),
            ("/opt/millrace/prometheus/bin/prometheus-alertmanager --x", "monitoring"),
            ("/opt/millrace/node-exporter/bin/prometheus-node-exporter --x", "monitoring"),
            (
                "java -javaagent:/opt/millrace/jmx-agent/x.jar kafka.Kafka /x/broker.properties",
                "brokers",
            ),
            ("/usr/bin/dockerd", "engine"),
            ("/sbin/init", "hosts"),
        ],
    )
    def test_a_command_line_tells_the_role(self, command: str, role: str) -> None:
        assert ROLES.of([process(7, command)]) == {7: role}

    def test_children_work_for_their_parents(self) -> None:
        tree = [
            process(10, "java resourcemanager.NodeManager nodemanager.NodeManager"),
            process(11, "java YarnCoarseGrainedExecutorBackend", parent=10),
            process(12, "python3 -m pyspark.daemon", parent=11),
            process(13, "bash", parent=12),
        ]
        assert ROLES.of(tree) == {10: "yarn", 11: "executors", 12: "executors", 13: "executors"}

    def test_hosts_are_not_the_engine_that_started_them(self) -> None:
        tree = [
            process(10, "/usr/bin/containerd-shim-runc-v2", contained=False),
            process(11, "/sbin/init", parent=10),
            process(12, "/lib/systemd/systemd-journald", parent=11),
        ]
        assert ROLES.of(tree) == {10: "engine", 11: "hosts", 12: "hosts"}

    def test_others_are_neither_contained_nor_the_kernel(self) -> None:
        found = [
            process(2, "", parent=0, contained=False),
            process(3, "", parent=2, contained=False),
            process(500, "make -j8", contained=False),
        ]
        assert ROLES.of(found) == {2: "kernel", 3: "kernel", 500: "others"}

    def test_a_line_of_proc_with_brackets_in_its_name(self) -> None:
        fields = ["S", "7", *["0"] * 9, "150", "50", *["0"] * 6, "4242", "0"]
        found = parse(f"33 (a) b) {' '.join(fields)}", b"a\0b\0", "0::/docker/abc\n")
        assert (found.pid, found.parent, found.started) == (33, 7, 4242)
        assert found.cpu == pytest.approx(2.0)
        assert (found.command, found.contained) == ("a b ", True)


class TestUsage:
    def test_who_comes_and_who_goes_is_charged(self) -> None:
        broker = "kafka.Kafka broker.properties"
        usage = Usage(ROLES, [process(5, broker, cpu=10.0)])
        usage.look([process(5, broker, cpu=11.0), process(6, "redis-server", cpu=0.5)])
        usage.look([process(5, broker, cpu=12.0)])
        assert usage.by_role() == {"brokers": 2.0, "redis": 0.5}

    def test_a_new_process_with_an_old_id_is_another_one(self) -> None:
        usage = Usage(ROLES, [process(5, "redis-server", cpu=9.0)])
        usage.look([Process(5, 0, 999, 0.25, "redis-server", True)])
        assert usage.by_role() == {"redis": 0.25}

    def test_who_offers_and_looks_is_not_the_service(self) -> None:
        assert (
            service({"load": 1, "bench": 1, "others": 1, "brokers": 0.5, "hosts": 0.25}, ROLES)
            == 0.75
        )


class TestFresh:
    positions = (Seen(1, (0, 0)), Seen(2, (3, 1)), Seen(3, (3, 4)))

    def test_an_event_is_in_the_topic_once_the_position_is_beyond_it(self) -> None:
        found = fresh.visible_in_topic(
            self.positions, np.array([0, 0, 1, 1, 1]), np.array([0, 2, 0, 1, 4])
        )
        assert found[:4].tolist() == [2, 2, 2, 3]
        assert np.isnan(found[4])

    def test_a_position_that_was_asked_of_a_broker_behind_takes_nothing_back(self) -> None:
        seen = [Seen(1, (0,)), Seen(2, (5,)), Seen(3, (4,)), Seen(4, (6,))]
        found = fresh.visible_in_topic(seen, np.zeros(2, int), np.array([4, 5]))
        assert found.tolist() == [2, 4]

    def test_an_event_is_in_the_api_once_all_of_its_batch_is_counted(self) -> None:
        counts = [Seen(1, (50,)), Seen(2.5, (53,)), Seen(3.5, (54,)), Seen(4.5, (57,))]
        found = fresh.visible_in_api(self.positions, counts, np.array([2.0, 3.0, np.nan]))
        assert found[:2].tolist() == [3.5, 4.5]
        assert np.isnan(found[2])

    def test_what_others_send_is_noticed(self) -> None:
        with pytest.raises(OperatorError, match="somebody else"):
            fresh.visible_in_api(self.positions, [Seen(1, (0,)), Seen(2, (8,))], np.array([2.0]))


def trial(lags: list[int], behind: float = 0.0, rate: float = 1000, trigger: float = 1.0) -> Trial:
    moments = [2.0 * n for n in range(len(lags))]
    return Trial(rate, moments, {"traffic": lags}, {"traffic": trigger}, behind)


def teeth(growth: float, rate: float = 1000, trigger: int = 20, seconds: int = 180) -> list[int]:
    """Looks, every 2 s, at a job that takes all but what it falls behind by every ``trigger`` s."""
    return [round(growth * at + rate * (at % trigger)) for at in range(7, seconds, 2)]


class TestSearch:
    def test_lag_that_comes_and_goes_is_sustained(self) -> None:
        assert verdict(trial([1000, 3000] * 15)) == ""

    def test_lag_that_grows_is_not(self) -> None:
        assert "falls behind by 100" in verdict(trial([200 * n for n in range(30)]))

    @pytest.mark.parametrize("seconds", range(60, 200, 14))
    def test_long_batches_are_no_trend(self, seconds: int) -> None:
        assert verdict(trial(teeth(0, seconds=seconds), trigger=20)) == ""

    def test_long_batches_that_leave_more_each_time_are_one(self) -> None:
        assert "falls behind by 80 " in verdict(trial(teeth(80), trigger=20))

    def test_how_it_began_is_no_trend(self) -> None:
        assert verdict(trial([*range(0, 5000, 500), *[5000] * 20])) == ""

    def test_lag_that_is_long_is_not(self) -> None:
        assert "20 s behind" in verdict(trial([20_000] * 20))

    def test_a_load_that_fell_behind_proves_nothing(self) -> None:
        assert "load" in verdict(trial([0] * 20, behind=3.0))

    @given(st.floats(100, 200_000))
    @settings(max_examples=100)
    def test_the_search_comes_near_the_limit_from_below(self, limit: float) -> None:
        tried: list[float] = []

        def sustained(rate: float) -> bool:
            tried.append(rate)
            return rate <= limit

        found = highest(1000, 64_000, sustained)
        assert len(tried) < 15
        if limit < 1000:
            assert found == 0
        elif limit >= 64_000:
            assert found == 64_000
        else:
            assert found <= limit < 1.11 * found


COST = {
    "kind": "service-cost",
    "taken": "2026-11-23T12:00:00Z",
    "version": "abc",
    "machine": {"cores": 2, "cpu": "x", "memory_gib": 24.0, "kernel": "6"},
    "settings": {"rate": 1000.0, "pages": 200, "jobs": ["archive", "traffic"], "after_idle": 0},
    "result": {
        "quiet": True,
        "runs": [
            {
                "idle": {"cores": {"brokers": 0.1}, "service_cores": 0.3, "unseen_cores": 0.0},
                "loaded": {
                    "cores": {"brokers": 0.1 + extra, "load": 0.02},
                    "service_cores": 0.3 + extra,
                    "unseen_cores": 0.01,
                },
                "memory_mib": {"brokers": 900.0, "load": 80.0},
            }
            for extra in (0.05, 0.06, 0.10)
        ],
    },
}
FRESH = COST | {
    "kind": "service-fresh",
    "result": {
        "runs": [
            {
                place: {"ms": {"p50": 700, "p99": 1500}, "never_seen": 0}
                for place in ("topic", "api")
            }
        ]
    },
}
SEARCH = COST | {
    "kind": "service-search",
    "result": {
        "sustained_per_second": 8000,
        "trials": [{"rate": 8000, "reason": "", "lags": {"archive": [5], "traffic": [7, 9]}}],
    },
}
MONITORING = COST | {
    "kind": "service-monitoring",
    "result": {
        "runs": [
            {
                "with": {"service_cores": 0.5, "cores": {"monitoring": 0.05, "bench": 0.2}},
                "without": {"service_cores": 0.375, "cores": {"bench": 0.2}},
                "memory_mib": {"monitoring": 300.0},
            }
        ]
    },
}
RUN_OF_B = {
    "engine": "b",
    "events_per_second": 50,
    "core_us_per_event": 2.0,
    "correct": True,
}
ENGINES = COST | {
    "kind": "engines-ysb",
    "settings": {"events": 1000},
    "result": {
        "about": "windows of its own",
        "settings_of": {"a": "fast"},
        "runs": [
            {"engine": name, "events_per_second": rate, "core_us_per_event": 2.0, "correct": True}
            for name, rate in (("a", 100), ("b", 50), ("a", 300))
        ],
    },
}

Q5 = ENGINES | {"kind": "engines-nexmark-q5"}
Q12 = ENGINES | {
    "kind": "engines-nexmark-q12",
    "result": ENGINES["result"] | {"runs": [RUN_OF_B | {"correct": False}]},
}


class TestReport:
    def test_cost_is_above_idle_and_has_median_and_range(self) -> None:
        [section] = report.sections(COST)
        by_role = {row[0]: row for row in section.rows}
        assert by_role["the whole service"][3] == "60.0 (50.0–100.0)"
        assert by_role["brokers"][3] == "60.0 (50.0–100.0)"
        assert by_role["the whole service"][4].startswith("900")
        assert "load (not of the service)" in by_role

    def test_engines_stand_beside_the_first(self) -> None:
        [section] = report.sections(ENGINES)
        assert [row[:3] for row in section.rows] == [
            ["a", "200 (100–300)", "1.00"],
            ["b", "50", "4.00"],
        ]

    def test_queries_of_nexmark_stand_together_in_their_order(self) -> None:
        section = report.queries([Q12, Q5])
        assert section.columns == ["query", "a, events/s", "b, events/s"]
        assert section.rows == [
            ["q5", "200 (100–300), 2 of 2 right", "50, 1 of 1 right"],
            ["q12", "–", "50, 0 of 1 right"],
        ]
        assert section.notes[0] == "a: fast."  # once
        assert [note.partition(".")[0] for note in section.notes[1:]] == [
            "q5: windows of its own",
            "q12: windows of its own",
        ]
        page = report.records_page([Q12, Q5], [])
        assert page.count("## ") == 1
        assert "## Engines: Nexmark" in page

    def test_watching_costs_what_is_more_with_it(self) -> None:
        [section] = report.sections(MONITORING)
        assert section.rows == [
            ["the whole service", "0.500", "0.375", "0.125"],
            ["monitoring", "0.050", "0.000", "0.050"],
        ]
        assert "300 MiB" in section.notes[0]

    @pytest.mark.parametrize("record", [COST, FRESH, SEARCH, MONITORING, ENGINES])
    def test_every_kind_becomes_a_table_and_a_part_of_the_page(self, record: dict) -> None:
        assert report.tables(record)
        [section] = report.sections(record)
        assert f"## {section.title}" in report.records_page([record], [])
        assert not section.bars or report.picture(section) == report.picture(section)

    def test_a_machine_that_was_not_quiet_is_told(self) -> None:
        noisy = COST | {"result": COST["result"] | {"quiet": False}}
        assert "others used the machine" in report.provenance(noisy)
        assert "others used" not in report.provenance(COST)

    def test_a_record_is_kept_and_read_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bench.record.RECORDS", tmp_path)
        assert keep(COST, public=True).name == "service-cost-200-pages-2-jobs.json"
        assert read_records(tmp_path) == [COST]

    def test_what_was_measured_after_idling_stands_beside_the_rest(self) -> None:
        rested = FRESH | {"settings": COST["settings"] | {"after_idle": 3600}}
        assert name(rested) == "service-fresh-200-pages-2-jobs-after-60-min-idle"
        [section] = report.sections(rested)
        assert "right after 60 idle minutes" in section.title
        goal = goals.Goal(what="p50", of="fresh_after_idle_p50", at_most=0.7, why="")
        assert goals.measured(goal, {name(rested): rested}, {}) == 0.7
        assert goals.measured(goal, {name(FRESH): FRESH}, {}) is None

    def test_the_page_says_what_the_records_say(self) -> None:
        """`python -m bench.report` writes it."""
        for page, text in report.pages(read_records()).items():
            assert page.read_text() == text, page.name

    def test_the_first_page_has_six_figures_of_the_records(self) -> None:
        page = report.first_page([COST, FRESH, SEARCH], [])
        assert re.findall(r"^### (.+)", page, re.MULTILINE) == [
            report.sections(record)[0].title for record in (COST, FRESH)
        ]
        pictures = re.findall(r"\]\((performance/.+\.svg)\)", report.DOCUMENT.read_text())
        assert len(pictures) == len(report.FIGURES) == 6
        assert [each for each in pictures if not (report.DOCUMENT.parent / each).exists()] == []
