"""What a drill leaves for the exporter, in a file that is never half there."""

import stat
import subprocess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from millrace.cluster.marks import DRILL, drill_text, writing


def test_a_drill_is_told_as_prometheus_reads_it() -> None:
    (family,) = text_string_to_metric_families(drill_text("driver-killed", 1_795_252_545.9))
    (sample,) = family.samples
    assert (sample.name, sample.labels) == (DRILL, {"name": "driver-killed"})
    assert sample.value == 1_795_252_546


def test_a_file_is_written_whole_and_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "drill.prom"
    for text in ("one\n", "two\n"):
        command = writing(str(path)).removeprefix("sudo ")
        subprocess.run(["sh", "-c", f"umask 077; {command}"], input=text, text=True, check=True)
        assert path.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
