"""Models of ``configs/jobs/``: the settings of the jobs that are one file each."""

from pathlib import Path

from millrace.common.paths import CONFIGS
from millrace.config import Component, Model, Name, Setting, read_yaml, validate

DEFAULTS = "defaults"
# What a job's checkpoint is named after has no default that could stand in a file.
CHECKPOINT_WHY = "The folder of the job's checkpoint; another name starts the job anew."


class JobSettings(Model):
    """``configs/jobs/<name>.yaml``; ``window_seconds`` is the one setting without a default."""

    summary: str
    settings: dict[Name, Setting]


def load_job_settings(configs: Path = CONFIGS) -> dict[str, dict[str, Setting]]:
    """By job: the defaults, and what its own file says otherwise."""
    found = {
        path.stem: validate(JobSettings, read_yaml(path), path).settings
        for path in sorted((configs / "jobs").glob("*.yaml"))
    }
    defaults = found.pop(DEFAULTS, {})
    return {
        job: defaults
        | {"checkpoint": Setting(value=job, why=CHECKPOINT_WHY, source="docs/new-state.md")}
        | own
        for job, own in found.items()
    }


def with_jobs(spark: Component, jobs: dict[str, dict[str, Setting]]) -> Component:
    """Spark's component with the settings of these jobs beside those of the others."""
    return spark.model_copy(update={"settings": spark.settings | jobs})
