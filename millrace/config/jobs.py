"""Jobs of one file: where they are, and their settings.

Ours have settings in ``configs/jobs/NAME.yaml`` and their code in ``spark-jobs``. Yours are in a
folder of your own repository, which the environment names under ``job_folders``: ``NAME.py`` or
``NAME.sql`` with ``NAME.yaml`` beside it. A folder that ``MILLRACE_TRIAL`` names is one more, whose
jobs run until the next deployment without it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from millrace.common.errors import NOTHING_CHANGED, OperatorError, Problems
from millrace.common.paths import CONFIGS, REPO
from millrace.config.component import Component
from millrace.config.environment import Environment
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model, Name, Setting

OURS = REPO / "spark-jobs" / "millrace_jobs" / "jobs"
CODE = (".py", ".sql")
DEFAULTS = "defaults"
CHECKPOINT_WHY = "The folder of the job's checkpoint; another name starts the job anew."
ARCHIVE = "archive"  # the job that archives the stream which jobs read by default
ARCHIVES = f"{ARCHIVE}_"  # what the others' names begin with: archive_STREAM


# A job's trigger: in batches, or each event by itself.
MICRO_BATCH, REAL_TIME = "micro-batch", "real-time"
# All that a job in real time has of the defaults; the others are about rows that it doesn't keep.
OF_REAL_TIME = {"trigger", "trigger_seconds", "lag_seconds", "shuffle_partitions"}
OF_ROWS = {"streams"}  # that have no default


class JobSettings(Model):
    """``NAME.yaml``: what differs from the defaults, and whatever the job's own code asks for."""

    summary: str
    settings: dict[Name, Setting] = {}


def folders_of(environment: Environment) -> list[Path]:
    """The environment's ``job_folders``; relative ones are seen from the checkout's root."""
    folders = [(REPO / folder).resolve() for folder in environment.job_folders]
    problems = Problems()
    problems.add(f"job_folders: {folder} is no folder" for folder in folders if not folder.is_dir())
    problems.refuse()
    return folders


def on_trial(environment: Environment, folder: str | None) -> Environment:
    """Adds the jobs of this folder: to the first application, or in real time to their own."""
    if not folder:
        return environment
    folders = [*environment.job_folders, folder]
    [(application, jobs), *others] = environment.applications.items()
    tried = {path.stem: _read(path.with_suffix(".yaml")) for path in code_of(REPO / folder)}
    alone = {job: [job] for job, settings in tried.items() if is_real_time(settings)}
    beside = [job for job in tried if job not in alone]
    applications = {application: [*jobs, *beside]} | dict(others) | alone
    return environment.model_copy(update={"job_folders": folders, "applications": applications})


def is_real_time(settings: Mapping[str, Setting]) -> bool:
    return "trigger" in settings and settings["trigger"].value == REAL_TIME


def code_of(folder: Path) -> Iterator[Path]:
    """The files of a folder's jobs that hosts need: those that have settings beside them."""
    for settings in sorted(folder.glob("*.yaml")):
        yield from (path for path in map(settings.with_suffix, CODE) if path.exists())


def declaration_of(job: str, folders: Iterable[Path] = ()) -> tuple[Path, str] | None:
    """The file that is the job, and its summary; None for a program of ours."""
    for settings, code in [(CONFIGS / "jobs", OURS), *((folder, folder) for folder in folders)]:
        path = settings / f"{job}.yaml"
        if path.exists():
            file = next(p for suffix in CODE if (p := code / f"{job}{suffix}").exists())
            return file, validate(JobSettings, read_yaml(path), path).summary
    return None


def load_job_settings(
    streams: Collection[str], folders: Iterable[Path] = (), configs: Path = CONFIGS
) -> dict[str, dict[str, Setting]]:
    """Returns by job the defaults, and what its own file says otherwise.

    Raises OperatorError for a job that can't be run, or that reads none of ``streams``.
    """
    defaults = _read(configs / "jobs" / f"{DEFAULTS}.yaml")
    found: dict[str, dict[str, Setting]] = {}
    ours = [path for path in (configs / "jobs").glob("*.yaml") if path.stem != DEFAULTS]
    files = [(path, OURS) for path in sorted(ours)]
    files += [(path, folder) for folder in folders for path in sorted(folder.glob("*.yaml"))]
    problems = Problems()
    for path, code in files:
        with problems.caught():
            _add(found, path, code, defaults, streams)
    problems.refuse()
    return found


def with_jobs(spark: Component, jobs: dict[str, dict[str, Setting]]) -> Component:
    """Spark's component with the settings of these jobs beside those of the others."""
    problems = Problems()
    problems.add(
        f"job {name}: there is a job of that name already; rename yours"
        for name in sorted(spark.settings.keys() & jobs.keys())
    )
    problems.refuse()
    return spark.model_copy(update={"settings": spark.settings | jobs})


def archive_job(stream: str, default: str) -> str:
    """The name of the job that archives a stream; ``default`` is what jobs read by default."""
    return ARCHIVE if stream == default else f"{ARCHIVES}{stream}"


def archives(spark: Component, streams: Iterable[str]) -> dict[str, dict[str, Setting]]:
    """A job for each further stream: as the one of the default stream, beside it."""
    default = str(spark.settings["common"]["stream"].value)
    own = "The stream that this job archives, into a table of its own."
    return {
        job: spark.settings[ARCHIVE]
        | {
            "checkpoint": Setting(value=job, why=CHECKPOINT_WHY, source="docs/new-state.md"),
            "stream": Setting(value=stream, why=own, source="its name"),
        }
        for stream in streams
        if (job := archive_job(stream, default)) != ARCHIVE
    }


def problems(environment: Environment, spark: Component) -> Iterator[str]:
    """Jobs that an application is to run and nobody has declared."""
    for application, jobs in environment.applications.items():
        for job in jobs:
            if job not in spark.settings:
                yield (
                    f"applications.{application}: no job {job}; it needs {job}.yaml in configs/jobs"
                    " or in one of job_folders"
                )


def _add(
    found: dict[str, dict[str, Setting]],
    path: Path,
    code: Path,
    defaults: dict[str, Setting],
    streams: Collection[str],
) -> None:
    job = path.stem
    own = _read(path)
    if job.startswith(ARCHIVES):
        raise _refusal(f"{path}: only archives of streams have names with {ARCHIVES}; rename yours")
    if job in found:
        raise _refusal(f"{path}: there is a job {job} already; rename yours")
    if not any((code / f"{job}{suffix}").exists() for suffix in CODE):
        raise _refusal(f"{path}: neither {job}.py nor {job}.sql is in {code}")
    of_rows = defaults.keys() - OF_REAL_TIME | OF_ROWS
    problems = Problems()
    found_here = [*_trigger_problems(own, of_rows), *_stream_problems(own, streams)]
    problems.add((f"settings.{problem}" for problem in found_here), str(path))
    problems.refuse()
    if is_real_time(own):
        defaults = {name: defaults[name] for name in defaults.keys() - of_rows}
    checkpoint = Setting(value=job, why=CHECKPOINT_WHY, source="docs/new-state.md")
    found[job] = defaults | {"checkpoint": checkpoint} | own


def _trigger_problems(own: dict[str, Setting], of_rows: Collection[str]) -> Iterator[str]:
    """Says what is wrong with ``trigger``, and with what the job says beside it, by setting."""
    trigger = own["trigger"].value if "trigger" in own else MICRO_BATCH
    if trigger not in (MICRO_BATCH, REAL_TIME):
        yield f"trigger: {trigger!r} is neither {MICRO_BATCH} nor {REAL_TIME}"
    elif trigger == REAL_TIME:
        for name in sorted(own.keys() & of_rows):
            yield (
                f"{name}: in real time a job looks at each event of one `stream` alone, and keeps"
                f" neither state nor rows; leave it out, or leave out trigger: {REAL_TIME}"
            )


def _stream_problems(own: dict[str, Setting], streams: Collection[str]) -> Iterator[str]:
    """Says what is wrong with ``stream`` and ``streams`` of a job, by setting."""
    if "stream" in own and "streams" in own:
        yield "streams: says what the job reads, and so does stream; leave one out"
    for name in {"stream", "streams"} & own.keys():
        value = own[name].value
        wanted = value if name == "streams" else [value]
        if not isinstance(wanted, list) or not wanted:
            yield f"{name}: {value!r} is no list of streams, such as [impressions, clicks]"
            return
        if len(set(wanted)) != len(wanted):
            yield f"{name}: a stream stands twice in the list"
        for stream in wanted:
            if stream not in streams:
                known = ", ".join(sorted(streams))
                yield f"{name}: no stream {stream} in configs/streams, which has {known}"


def _read(path: Path) -> dict[str, Setting]:
    return validate(JobSettings, read_yaml(path), path).settings


def _refusal(what: str) -> OperatorError:
    return OperatorError(what, NOTHING_CHANGED)
