"""The operator's command line: puts the rooms together, and is the only one that knows `infra`.

commands.py     what can be typed, and where each command is
*_commands.py   commands of a plan, of a cluster and for maintainers
operations.py   check the machine, make the hosts, deploy the jobs, remove all
playbook.py     run a playbook: one screen of progress, the whole log in a file
tables.py       facts that jobs look up: list, show, put, remove
keys.py         keys of who sends and reads: list, add, rotate, revoke
service.py      versions of the jobs: upgrade, back out, suspend, resume
jobs.py         the streaming jobs one by one: list, check, disable, enable
job_facts.py    what a job is, by the plan and its declaration
job_check.py    declared jobs, analysed by a Spark on this machine
demo.py         `make demo`
settling.py     what it waits for in the end
docs.py         the generated parts of the documents
retention.py    of these, what is kept how long
"""

from millrace.cli.commands import app, main

__all__ = ["app", "main"]
