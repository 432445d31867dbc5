"""`millrace logs`: what a host reads of its files and journal, and how hosts become one."""

import gzip
import io
import json
import os
import shlex
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster import log_reader
from millrace.cluster import logs as cluster_logs
from millrace.cluster.logs import Entry, Wanted, reading
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.plan import Plan, load_plan
from millrace.support.logs import (
    arriving,
    hosts_of,
    in_json,
    known,
    merged,
    parts_of,
    pattern,
    show,
)
from tests.unit.stand_ins import install
from tests.waiting import PATIENCE_SECONDS

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan("local")


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# --- lines become entries -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("2026-11-23 12:00:01,500 INFO a.B: ready", "INFO a.B: ready"),
        ("2026-11-23T12:00:01,500 WARN Client: slow", "WARN Client: slow"),
        ("INFO  [Messaging-1:2] 2026-11-23 12:00:01,500 Gossip.java:1 - up", None),
        (
            "[2026-11-23T12:00:01.500+0000][info] GC(3) Pause Young 3ms",
            "[info] GC(3) Pause Young 3ms",
        ),
        (
            "[2026-11-23T14:00:01.500+0200][info] GC(3) Pause Young 3ms",
            "[info] GC(3) Pause Young 3ms",
        ),
    ],
)
def test_the_time_of_each_format_is_understood(line: str, text: str | None) -> None:
    text = text or "INFO  [Messaging-1:2] Gossip.java:1 - up"
    assert list(log_reader.entries([line + "\n"], 0)) == [(NOON + 1.5, text)]


def test_a_stack_trace_belongs_to_the_line_above_it() -> None:
    lines = [
        "starting",
        "2026-11-23 12:00:00,0 ERROR x",
        "java.io.IOException",
        "\tat a.b(C.java:1)",
    ]
    assert list(log_reader.entries(lines, 0)) == [
        (NOON, "starting"),
        (NOON, "ERROR x\njava.io.IOException\n\tat a.b(C.java:1)"),
    ]


def test_what_never_says_the_time_has_its_files() -> None:
    found = list(log_reader.entries(["x"] * (log_reader.LINES + 1), NOON))
    assert [when for when, _ in found] == [NOON, NOON]


@given(st.lists(st.sampled_from(["2026-11-23 12:00:00,1 INFO x", "\tat a.b", "text", ""])))
def test_no_line_is_lost(lines: list[str]) -> None:
    kept = "\n".join(text for _, text in log_reader.entries(lines, 0))
    assert kept == "\n".join(lines).replace("2026-11-23 12:00:00,1 ", "")


# --- what a host reads ----------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host's folders, and a journal that has what is in ``journal``."""
    programs = tmp_path / "bin"
    programs.mkdir()
    install({"journalctl": f"cat {tmp_path}/journal 2>/dev/null", "sudo": 'exec "$@"'}, programs)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def write(path: Path, text: str, changed: float = NOON + 60) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    os.utime(path, (changed, changed))


def journal(host: Path, *messages: tuple[float, str, object]) -> None:
    lines = [
        {"__REALTIME_TIMESTAMP": f"{when * 1e6:.0f}", "MESSAGE": text, "_SYSTEMD_UNIT": who}
        | {"SYSLOG_IDENTIFIER": who.removesuffix(".service")}
        for when, who, text in messages
    ]
    (host / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))


def asked(host: Path, capsys: pytest.CaptureFixture[str], **different: object) -> list[tuple]:
    question = {
        "since": NOON,
        "until": NOON + 60,
        "pattern": "",
        "level": "debug",
        "units": {"namenode": f"{host}/namenode"},
        "containers": f"{host}/containers",
        "kinds": ["driver", "executor"],
        "system": True,
        "gc": False,
        "follow": False,
    }
    log_reader.main(question | different)
    lines = capsys.readouterr().out.splitlines()
    return [(when - NOON, source, text) for when, source, _, text in map(json.loads, lines)]


def test_files_journal_and_containers_are_one_log(host: Path, capsys) -> None:
    write(host / "namenode/namenode.log.1", "2026-11-23 12:00:01,0 INFO a\n", NOON + 2)
    write(host / "namenode/namenode.log", "2026-11-23 12:00:04,0 INFO b\n")
    write(host / "namenode/old.log", "2026-11-23 11:00:04,0 INFO old\n", NOON - 1)
    application = host / "containers/application_17_0003"
    write(application / "container_e02_17_0003_01_000001/stderr", "2026-11-23T12:00:02,0 WARN c\n")
    write(application / "container_e02_17_0003_01_000002/stderr", "2026-11-23T12:00:03,0 WARN d\n")
    journal(
        host,
        (NOON + 5, "namenode.service", [111, 107]),
        (NOON + 6, "kernel", "out of memory"),
        (NOON + 7, "sshd", "somebody looks"),
        (NOON + 99, "kernel", "too late"),
    )
    assert asked(host, capsys) == [
        (1, "namenode", "INFO a"),
        (2, "driver 3", "WARN c"),
        (3, "executor 3.2", "WARN d"),
        (4, "namenode", "INFO b"),
        (5, "namenode", "ok"),
        (6, "system", "kernel: out of memory"),
    ]


def test_only_what_is_asked_for_is_read(host: Path, capsys) -> None:
    application = host / "containers/application_17_0003"
    write(application / "container_17_0003_01_000001/stdout", "2026-11-23T12:00:02,0 WARN c\n")
    write(application / "container_17_0003_01_000002/stdout", "2026-11-23T12:00:03,0 WARN d\n")
    journal(host, (NOON + 6, "kernel", "out of memory"))
    only = asked(host, capsys, units={}, kinds=["driver"], system=False)
    assert only == [(2, "driver 3", "WARN c")]


def test_a_driver_is_known_by_what_it_runs_not_by_its_number(host: Path, capsys) -> None:
    """YARN's first container of an attempt may be lost: then the driver's has the number 2."""
    application = host / "containers/application_17_0003"
    for number, runs in ((2, "deploy.yarn.ApplicationMaster"), (3, "executor.Yarn")):
        container = application / f"container_17_0003_02_00000{number}"
        write(container / "launch_container.sh", f'exec java "org.apache.spark.{runs}"\n')
        write(container / "stdout", f"2026-11-23T12:00:0{number},0 WARN c\n")
    assert asked(host, capsys) == [(2, "driver 3", "WARN c"), (3, "executor 3.3", "WARN c")]


def test_a_stack_trace_is_searched_and_shown_whole(host: Path, capsys) -> None:
    write(
        host / "namenode/x.log", "2026-11-23 12:00:01,0 ERROR a\n\tat b\n2026-11-23 12:00:02,0 c\n"
    )
    assert asked(host, capsys, pattern=r"at\sb") == [(1, "namenode", "ERROR a\n\tat b")]


def test_collectors_are_silent_unless_asked(host: Path, capsys) -> None:
    write(host / "namenode/gc.log.0", "[2026-11-23T12:00:01.000+0000][info] GC(1) Pause\n")
    write(host / "namenode/system.log.2026-11-23.0.gz", "INFO  [m] 2026-11-23 12:00:02,0 A - x\n")
    assert asked(host, capsys) == [(2, "namenode", "INFO  [m] A - x")]
    assert len(asked(host, capsys, gc=True)) == 2


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("INFO  [Messaging-1:2] Gossip.java:1 - ERROR is what the peer said", "info"),
        ("WARN Client: slow\n\tat a.b", "warning"),
        ("FATAL org.apache.hadoop.hdfs.server.namenode.NameNode: no", "error"),
        ("[warning] GC(3) a long pause", "warning"),
        ("INFO:     Application startup complete.", "info"),
        ("WARNING the lease was lost", "warning"),
        ("time=2026-11-23T12:00:01.500Z level=ERROR source=main.go:9 msg=x", "error"),
        ("ts=2026-11-23T12:00:01.500Z caller=main.go:9 level=debug msg=x", "debug"),
        ("12:M 23 Nov 2026 12:00:01.500 # Connection with replica lost", "warning"),
        ("12:M 23 Nov 2026 12:00:01.500 * Ready to accept connections", "info"),
        ("Informing everybody: level=unheard", "info"),
        ("Exception in thread main", "info"),
    ],
)
def test_how_bad_it_is_is_understood(text: str, level: str) -> None:
    assert log_reader.level_of(text) == level


def test_only_what_is_bad_enough_is_read(host: Path, capsys) -> None:
    write(
        host / "namenode/x.log",
        "2026-11-23 12:00:01,0 INFO a\n2026-11-23 12:00:02,0 WARN b\n"
        "2026-11-23 12:00:03,0 ERROR c\n",
    )
    journal(host, (NOON + 4, "namenode.service", "killed"), (NOON + 5, "kernel", "fine"))
    text = (host / "journal").read_text()
    (host / "journal").write_text(text.replace('"killed"', '"killed", "PRIORITY": "3"'))
    worse = [(2, "namenode", "WARN b"), (3, "namenode", "ERROR c"), (4, "namenode", "killed")]
    assert asked(host, capsys, level="warning") == worse
    assert asked(host, capsys, level="error") == worse[1:]


# --- what is said from now on ---------------------------------------------------------------------

FOLLOWED = {
    "since": 0,
    "until": 0,
    "pattern": "",
    "level": "debug",
    "containers": None,
    "kinds": [],
    "system": False,
    "gc": False,
    "follow": True,
}


def test_the_past_is_told_and_then_what_is_said(
    host: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = host / "namenode"
    log = folder / "namenode.log"
    write(log, "2026-11-23 12:00:01,0 INFO a\n2026-11-23 12:00:02,0 INFO b\nhal")
    journal(host)

    def append(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    def put_aside() -> None:
        log.rename(folder / "namenode.log.1")
        write(log, "2026-11-23 12:00:06,0 INFO e\n")
        write(folder / "new.log", "2026-11-23 12:00:07,0 INFO f\n")

    happens = iter(
        [
            lambda: append("f\n2026-11-23 12:00:03,0 ERROR c\n\tat c\n"),
            lambda: append("\tat d\n"),
            lambda: append("2026-11-23 12:00:04,0 DEBUG d\n"),
            put_aside,
            lambda: None,
        ]
    )

    def pause(_: float) -> None:
        step = next(happens, None)
        if step is None:
            raise BrokenPipeError  # nobody listens any more
        step()

    monkeypatch.setattr(log_reader.clock, "time", lambda: NOON + 30)
    monkeypatch.setattr(log_reader.os, "dup2", lambda *_: None)
    question = FOLLOWED | {"units": {"namenode": str(folder)}, "level": "info"}
    log_reader.follow(question, pause)
    told = capfd.readouterr().out.splitlines()
    assert told.index("") == 2  # the past has ended
    assert [json.loads(line)[3] for line in told if line] == [
        "INFO a",
        "INFO b",
        "half",
        "ERROR c\n\tat c\n\tat d",
        "INFO e",
        "INFO f",
    ]


STEPS = st.lists(
    st.sampled_from(
        [b"2026-11-23 12:00:00,1 INFO x\n", b"\tat a.b\n", b"\xff", b"\r\n", b"\n", "aside"]
    )
)


@given(STEPS, st.integers(0, 10), st.integers(1, 4))
def test_no_line_is_lost_or_told_twice_wherever_the_past_ends(
    steps: list, past: int, at_once: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, written = Path(name), b""
        log = folder / "x.log"
        log.touch()
        told: list[str] = []
        logs: log_reader.Files | None = None
        question = FOLLOWED | {"units": {"x": name}}
        for number, step in enumerate([*steps, b"\n"]):
            if number == min(past, len(steps)):
                logs = log_reader.Files(question)
                found = [log_reader.read([path], 0, logs.ends) for path in oldest_first(folder)]
                told += [text for texts in found for _, text in texts]
            if isinstance(step, str):
                if not written.endswith(b"\n"):
                    continue  # programs put whole lines aside
                log.rename(folder / f"x.log.{number}")
                log.touch()
            else:
                with log.open("ab") as file:
                    file.write(step)
                written += step
            if logs and number % at_once == 0:
                told += [text for *_, text in logs.look(NOON)]
        assert logs
        told += [text for _ in range(2) for *_, text in logs.look(NOON)]
    lines = [line.rstrip("\r") for line in written.decode(errors="replace").split("\n")[:-1]]
    assert sorted("\n".join(told).split("\n")) == sorted(map(unstamped, lines))


def unstamped(line: str) -> str:
    found = log_reader.STAMP.match(line)
    return line[found.end() :] if found else line


def test_a_file_that_takes_another_one_s_inode_is_read_from_its_begin(tmp_path: Path) -> None:
    """As file systems give it soon to the next file."""
    log = tmp_path / "x.log"
    log.write_text("2026-11-23 12:00:00,1 INFO long ago\n")
    logs = log_reader.Files(FOLLOWED | {"units": {"x": str(tmp_path)}})
    log.write_text("new\n")
    assert [text for _ in range(2) for *_, text in logs.look(NOON)] == ["new"]


def oldest_first(folder: Path) -> list[str]:
    aside = sorted(folder.glob("x.log.*"), key=lambda path: int(path.suffix[1:]))
    return [str(path) for path in (*aside, folder / "x.log")]


def test_of_the_journal_what_is_newer_than_the_past_is_told(host: Path) -> None:
    journal(host, (NOON + 1, "namenode.service", "past"), (NOON + 3, "namenode.service", "new"))
    messages = log_reader.Messages(FOLLOWED | {"units": {"namenode": "x"}}, NOON + 2)
    messages.process.wait()
    assert list(messages.look()) == [(NOON + 3, "namenode", "info", "new")]
    assert list(messages.look()) == []
    messages.end()


# --- all hosts as one -----------------------------------------------------------------------------

ENTRIES = st.builds(
    Entry,
    st.integers(0, 20).map(float),
    st.sampled_from("abc"),
    st.just("x"),
    st.just("info"),
    st.text(max_size=3),
)


@given(st.lists(st.lists(ENTRIES).map(lambda s: sorted(s, key=lambda e: e.time))))
def test_streams_in_order_become_one_in_order(streams: list[list[Entry]]) -> None:
    found = list(merged(streams))
    assert sorted(found) == sorted(entry for stream in streams for entry in stream)
    assert [e.time for e in found] == sorted(e.time for e in found)


@given(st.lists(st.lists(ENTRIES)))
def test_a_clock_that_jumps_loses_nothing_and_turns_nothing_round(streams) -> None:
    numbered = [
        [entry._replace(host=str(n), source=str(k)) for k, entry in enumerate(stream)]
        for n, stream in enumerate(streams)
    ]
    found = list(merged(numbered))
    for n, stream in enumerate(numbered):
        assert [entry for entry in found if entry.host == str(n)] == stream


def test_entries_are_handed_on_before_the_last_one_has_come() -> None:
    def endless(host: str):
        when = 0.0
        while True:
            yield Entry(when, host, "x", "info", "")
            when += 1

    both = merged([endless("a"), endless("b")])
    assert [next(both).host for _ in range(4)] == ["a", "b", "a", "b"]


def test_a_name_is_a_services_or_its_units(plan: Plan) -> None:
    assert parts_of(plan, ["kafka-broker", "driver"]) == {"kafka_broker", "driver"}
    assert parts_of(plan, None) > {"kafka_broker", "driver", "executor", "system"}
    with pytest.raises(OperatorError, match="no service kafkka"):
        parts_of(plan, ["kafkka"])


def test_only_hosts_that_have_such_logs_are_asked(plan: Plan) -> None:
    drivers = hosts_of(plan, None, None, {"driver"})
    assert [host.name for host in drivers] == ["worker-1", "worker-2", "worker-3"]
    some = hosts_of(plan, ["edge-1"], ["kafka"], {"system"})
    assert [host.name for host in some] == ["kafka-1", "kafka-2", "kafka-3", "edge-1"]
    with pytest.raises(OperatorError, match="no host kafka-9"):
        hosts_of(plan, ["kafka-9"], None, {"system"})
    with pytest.raises(OperatorError, match="no zookeeper on edge-1"):
        hosts_of(plan, ["edge-1"], None, {"zookeeper"})


def test_a_wrong_expression_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(OperatorError, match="not a regular expression"):
        pattern("(")


def test_an_unknown_level_is_refused_before_anybody_is_asked() -> None:
    assert known("warning") == "warning"
    with pytest.raises(OperatorError, match="no level warn"):
        known("warn")


def test_a_host_is_asked_for_its_own_services(plan: Plan) -> None:
    wanted = Wanted(0, 1, {"datanode", "driver", "zookeeper"})
    asked = wanted.question(plan, plan.host("worker-1"))
    assert asked["units"] == {"datanode": "/var/log/millrace/datanode"}
    assert asked["containers"] == "/var/lib/millrace/nodemanager/logs"
    assert (asked["kinds"], asked["system"]) == (["driver"], False)
    assert wanted.question(plan, plan.host("coord-1"))["containers"] is None


def test_hosts_that_are_down_or_hang_are_named_and_the_others_read(
    plan: Plan, host: Path, monkeypatch
) -> None:
    """Each host is a shell on this machine; the second is down, the third never ends."""
    shells = {
        "kafka-1": ["sh", "-c"],
        "kafka-2": ["sh", "-c", "echo no route to host >&2; exit 255"],
        "kafka-3": ["sh", "-c", "exec sleep 3600"],
    }
    monkeypatch.setattr(cluster_logs, "ssh_command", lambda _, host: shells[host.name])
    journal(host, (NOON + 5, "kafka-broker.service", "ok"))
    hosts = [plan.host(name) for name in shells]
    wanted = Wanted(NOON, NOON + 60, {"kafka_broker"})
    patience = iter([PATIENCE_SECONDS, PATIENCE_SECONDS, 0.5])  # the third one's ends at once
    timer = threading.Timer
    monkeypatch.setattr(
        cluster_logs.threading, "Timer", lambda _, then: timer(next(patience), then)
    )
    with reading(plan, hosts, wanted, within=PATIENCE_SECONDS) as logs:
        assert list(merged(logs)) == [Entry(NOON + 5, "kafka-1", "kafka-broker", "info", "ok")]
        assert {log.host: log.problem for log in logs} == {
            "kafka-1": None,
            "kafka-2": "no route to host",
            "kafka-3": "not done in time",
        }


def test_followed_hosts_are_heard_as_it_comes_until_none_is_left(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host is a shell; what the second says late, it has said before the first one's past."""

    def says(*words: str) -> list[str]:
        lines = [
            json.dumps([NOON + int(word[0]), "x", "info", word]) if word else "" for word in words
        ]
        return ["sh", "-c", f"printf '%s\\n' {shlex.join(lines)}; echo gone >&2; exit 255"]

    shells = {"kafka-1": says("1a", "4d", "", "9x", "", "8y"), "kafka-2": says("2b", "3c", "", "")}
    monkeypatch.setattr(cluster_logs, "ssh_command", lambda _, host: shells[host.name])
    wanted = Wanted(NOON, NOON + 60, {"kafka_broker"}, follow=True)
    with reading(plan, [plan.host(name) for name in shells], wanted) as logs:
        assert [entry.text for entry in merged(logs)] == ["1a", "2b", "3c", "4d"]
        heard = list(arriving(logs, now=lambda: NOON))
    assert [entry.text for entry in heard if entry.host == "kafka-1"] == [
        "9x",
        "8y",
        "not heard any more: gone",
    ]
    assert [entry.text for entry in heard if entry.host == "kafka-2"] == [
        "not heard any more: gone"
    ]


def test_an_entry_is_an_object_for_programs() -> None:
    assert json.loads(
        in_json(Entry(NOON + 0.25, "kafka-2", "kafka-broker", "error", "one\n\ttwo"))
    ) == {
        "time": "2026-11-23T12:00:00.250+00:00",
        "host": "kafka-2",
        "source": "kafka-broker",
        "level": "error",
        "text": "one\n\ttwo",
    }


def test_an_entry_is_a_line_that_commands_no_terminal(plan: Plan) -> None:
    shown = io.StringIO()
    entries = [Entry(NOON + 1.5, "kafka-1", "kafka-broker", "warning", "a [red]\x1b[31m\nb")]
    show(plan, entries, Console(file=shown, soft_wrap=True))
    assert shown.getvalue() == (
        "2026-11-23 12:00:01.500 kafka-1     kafka-broker     a [red]␛[31m\n    b\n"
    )
