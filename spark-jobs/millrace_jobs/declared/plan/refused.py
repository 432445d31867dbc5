"""Why a declaration can't be run, and where in its file."""

from millrace_jobs.declared.plan.tree import Expression, Node


class Refused(Exception):
    """Says what is wrong and what to write instead; ``at`` is what it is about, if known."""

    def __init__(self, why: str, at: Expression | Node | None = None) -> None:
        self.place = at.place if at else None
        super().__init__(why)
