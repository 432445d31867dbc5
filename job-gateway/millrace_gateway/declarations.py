"""Can the declared jobs of a version be run? Spark analyses them before anything is touched."""

from subprocess import TimeoutExpired

from millrace_gateway.submit import Deployment

MODULE = "millrace_jobs.check"
SECONDS = 180  # of two busy cores; most of them pass until there is a Spark
LAST_WORDS = 1000


class DeclarationRejected(Exception):
    """A job of the version can't be run; says which one, where in its file, and why."""


def check(deployment: Deployment) -> None:
    """Raises DeclarationRejected unless Spark can make a plan of each declared job."""
    if not deployment.has(MODULE):
        return  # an earlier version, which may be backed out to
    what = f"{deployment.application} {deployment.version}"
    try:
        done = deployment.ask(MODULE, SECONDS)
    except TimeoutExpired:
        raise DeclarationRejected(
            f"{what}: its jobs were not analysed within {SECONDS} s. Nothing was changed; this host"
            " may be too busy: try again"
        ) from None
    if done.returncode:
        found = done.stdout.strip() or f"no analysis: {done.stderr.strip()[-LAST_WORDS:]}"
        raise DeclarationRejected(
            f"{what} can't be run:\n{found}\nNothing was changed: the version that runs goes on."
            " Mend the files and deploy again; `millrace jobs check` analyses them anywhere"
        )
