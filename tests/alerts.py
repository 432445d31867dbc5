"""The job of docs/your-own-job.md that runs in real time, as its readers write it down."""

import re
from pathlib import Path

from millrace.common.paths import REPO

JOB = "alerts"
SECTION = "## Alerts within milliseconds"


def write_down(folder: Path) -> Path:
    """Both of its files, into a folder."""
    _, _, page = (REPO / "docs" / "your-own-job.md").read_text().partition(SECTION)
    for suffix, language in (("sql", "sql"), ("yaml", "yaml")):
        found = re.search(
            rf"`my-alerts/{JOB}\.{suffix}`:\n\n```{language}\n(.*?)```", page, re.DOTALL
        )
        assert found
        (folder / f"{JOB}.{suffix}").write_text(found[1])
    return folder
