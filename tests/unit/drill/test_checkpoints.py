"""Drills that take a checkpoint away: wherever one stops, the right folder is back.

The runbooks' own blocks run here; HDFS is a folder, and the cluster a few lines of shell.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from millrace_jobs.inputs.continuity import CheckpointMismatch, Found, Known, check

from tests.unit.stand_ins import install, run_drill

CHECKPOINTS = "/millrace/checkpoints"
STAND_INS = {
    "millrace": """\
case $1 in
    hosts) echo worker-1 ;;
    who) [ "${3:-}" ] && echo the pids || echo worker-1 ;;
    jobs) [ $# -gt 1 ] || printf '%s\\n' 'traffic … failed' 'archive … running' ;;
    logs) grep -hE "${!#}" "$STAGE/stdout" ;;
    on) shift 3
        [ "$1" = kill ] || exec "$@" ;;
esac
""",
    "hdfs": """\
echo "$2" >> "$STAGE/calls"
[ "$(wc -l < "$STAGE/calls")" != "$FAILING" ] || exit 1
last=$STAGE/files${!#}
case $2 in
    -mv) mv "$STAGE/files$3" "$last" ;;
    -cp) cp -r "$STAGE/files$3" "$last" ;;
    -test) [ -e "$last" ] ;;
    -rm) rm -rf "$last" ;;
    -ls) printf '%s\\n' "$last"/* ;;
esac
""",
    # Batches go on meanwhile.
    "sleep": f'touch "$STAGE/files{CHECKPOINTS}/$JOB/offsets/10"\n',
}
LOST, ROLLED_BACK, STATE = "checkpoint-lost", "checkpoint-rolled-back", "state-lost"
# Of each drill the job, what its driver finds, and the batches that must be there in the end.
DRILLS = {
    LOST: ("archive", Found(None, -1), {"8", "9"}),
    ROLLED_BACK: ("traffic", Found("query", 9), {"8", "9", "10"}),
    STATE: ("traffic", Found("query", 9), {"8", "9"}),  # which Spark refuses, and not the driver
}
# How often HDFS is called until the fault is healed; the rollback's own calls come behind these.
CALLS = {LOST: 3, ROLLED_BACK: 7, STATE: 4}
each = pytest.mark.parametrize("name", DRILLS)


@dataclass(frozen=True)
class Stage:
    name: str
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"files{CHECKPOINTS}" / DRILLS[self.name][0]

    @property
    def folders(self) -> set[str]:
        return {path.name for path in self.checkpoint.parent.iterdir()}

    @property
    def has_state(self) -> bool:
        return (self.checkpoint / "state" / "9.delta").exists()

    @property
    def batches(self) -> set[str]:
        return {path.name for path in (self.checkpoint / "offsets").iterdir()}

    def run(self, meanwhile: str = "", failing: int = 0) -> bool:
        """Injects, recovers and, whatever happened, rolls back; False if a block failed.

        Args:
            meanwhile: shell that runs while the fault is in place.
            failing: the call of HDFS that fails.
        """
        return run_drill(
            self.name,
            self.folder,
            meanwhile,
            STAGE=str(self.folder),
            JOB=self.checkpoint.name,
            FAILING=str(failing),
        )


@pytest.fixture
def stage(name: str, tmp_path: Path) -> Stage:
    """Two batches are in the checkpoint; the driver's refusal is in its log, in its own words."""
    made = Stage(name, tmp_path)
    for folder in ("offsets", "state"):
        (made.checkpoint / folder).mkdir(parents=True)
    for file in ("metadata", "offsets/8", "offsets/9", "state/9.delta"):
        (made.checkpoint / file).touch()
    job, found, _ = DRILLS[name]
    with pytest.raises(CheckpointMismatch) as refused:
        check(job, f"hdfs://millrace{CHECKPOINTS}/{job}", Known("query", 12), found)
    raised = f"{CheckpointMismatch.__module__}.{CheckpointMismatch.__name__}: {refused.value}\n"
    (tmp_path / "stdout").write_text(raised)
    install(STAND_INS, tmp_path)
    return made


@each
def test_after_the_recovery_the_newest_checkpoint_is_there_and_no_other(stage):
    assert stage.run()
    assert stage.folders == {stage.checkpoint.name}
    assert stage.batches == DRILLS[stage.name][2]
    assert stage.has_state


@each
def test_wherever_a_drill_stops_the_newest_checkpoint_is_put_back(stage):
    stage.run()
    for failing in range(1, CALLS[stage.name] + 1):
        (stage.folder / "calls").unlink()
        stage.run(failing=failing)
        assert stage.folders == {stage.checkpoint.name}, f"call {failing}"
        assert stage.batches == DRILLS[stage.name][2], f"call {failing}"
        assert stage.has_state, f"call {failing}"


@pytest.mark.parametrize("name", [LOST])
def test_a_folder_that_was_made_anew_fails_the_drill_and_nothing_is_thrown_away(stage):
    assert not stage.run(meanwhile=f"mkdir -p {stage.checkpoint}/offsets")
    assert stage.batches == set()
    assert len(stage.folders) == 2


@pytest.mark.parametrize("name", [ROLLED_BACK])
def test_a_driver_that_goes_on_from_the_copy_fails_the_drill(stage):
    assert not stage.run(meanwhile=f"touch {stage.checkpoint}/offsets/11")
    assert stage.folders == {stage.checkpoint.name}
    assert stage.batches == {"8", "9", "10"}


@pytest.mark.parametrize("name", [STATE])
def test_state_that_was_begun_anew_is_replaced(stage):
    assert stage.run(meanwhile=f"mkdir -p {stage.checkpoint}/state/0")
    assert stage.folders == {stage.checkpoint.name}
    assert stage.has_state
