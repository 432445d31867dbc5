"""`job-gateway`, the program on the edge hosts that keeps the jobs running, by its own command."""

import json
from collections.abc import Mapping
from datetime import datetime
from subprocess import TimeoutExpired
from typing import Any

from millrace.cluster.ssh import Follow, run_on
from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import Plan

MARGIN = 30  # s, for SSH to tell what the gateway found
SSH_REFUSED = 255
BUSY = 75  # EX_TEMPFAIL of sysexits.h, by which the gateway says that another host may do it


class Gateway:
    """`job-gateway` on whichever edge host can be reached."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.applications = list(plan.applications)
        settings = plan.services["job_gateway"].settings["gateway.json"]
        self._longest = settings["deploy_timeout_seconds"] + MARGIN
        self._recount = settings["recount_timeout_seconds"] + MARGIN

    def run(
        self, *words: str, stdin: str = "", timeout: float = 30, follow: Follow | None = None
    ) -> str:
        """Runs a command; returns what it prints. Raises OperatorError with its reason if it
        fails. ``follow`` is told how far it is."""
        reasons = []
        for host in self._plan.hosts_of("job_gateway"):
            try:
                command = ["sudo", "job-gateway", *words]
                done = run_on(
                    self._plan, host, command, stdin=stdin, timeout=timeout, follow=follow
                )
            except TimeoutExpired:
                reasons.append(f"{host.name}: no answer in {timeout:g} s")
                continue
            if done.returncode == 0:
                return done.stdout.strip()
            if done.returncode not in (SSH_REFUSED, BUSY):
                raise OperatorError((done.stderr or done.stdout).strip())
            reasons.append(f"{host.name}: {done.stderr.strip()}")
        raise UnreachableError("\n".join(reasons), "`millrace status` shows which hosts are down")

    def wait(self, *words: str) -> str:
        """Runs a command that waits, as long as the plan says."""
        return self.run(*words, timeout=self._longest)

    def recount(
        self,
        job: str,
        start: datetime,
        end: datetime,
        generation: int | None = None,
        follow: Follow | None = None,
    ) -> dict[str, Any]:
        """Has a job's rows counted again and compared; times are naive, in UTC.

        Args:
            generation: by default what readers see.
        """
        words = [job, start.isoformat(), end.isoformat()]
        if generation is not None:
            words += ["--generation", str(generation)]
        return self._answer("recount", *words, follow=follow)

    def reconcile(
        self,
        job: str,
        question: Mapping[str, Any],
        version: str | None = None,
        follow: Follow | None = None,
    ) -> dict[str, Any]:
        """Has a job's past counted again, or readers switched: see millrace_jobs.reconcile.run.

        Args:
            version: of the jobs' code; by default the one that runs.
        """
        words = ["--version", version] if version else []
        return self._answer("reconcile", job, *words, stdin=json.dumps(question), follow=follow)

    def why(self, job: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Has a job's rows explained by their events: see millrace_jobs.recount.why."""
        return self._answer("why", job, stdin=json.dumps(question))

    def ask(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words))
        return answer

    def _answer(self, *words: str, stdin: str = "", follow: Follow | None = None) -> dict[str, Any]:
        """What a Spark on an edge host prints last."""
        said = self.run(*words, stdin=stdin, timeout=self._recount, follow=follow)
        [*_, last] = said.splitlines()
        answer: dict[str, Any] = json.loads(last)
        return answer
