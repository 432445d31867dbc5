"""`docs/alerts.md`: each alert with what it means, its rules, its drills and its page. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from millrace.alerts import rules
from millrace.config.alerts import Alert, AlertFile
from millrace.drill.report import latest, whole
from millrace.drill.runbook import FrontMatter, Runbook
from millrace.drill.tables import Records
from millrace.plan import Plan

LAPTOP = "local"  # where drills are recorded
INTRODUCTION = """\
# Alerts

A critical alert wakes somebody, a warning waits for the morning, and an info explains a gap. The
rules are data in `configs/alerts/`, and `promtool` tries them in `tests/unit/test_alerts.py`.
This page has them as they are for `local`. `millrace alerts` prints an environment's rules for a
Prometheus of yours; the links to runbooks begin with its external label `pages`. `millrace docs`
generates this page.

`millrace drill run NAME --alerts` holds a fault until its alert is due, and asks Prometheus. The
alert has to fire within its own wait, two scrapes and an evaluation. It has to resolve as soon
after all is healthy (later by as far as it looks back), and no other alert may wake somebody.
*Fired after* counts from the beginning of the injection, with all that the injection prepares
(`poison-code` deploys a job first); *resolved after* counts from when all was healthy again. Both
are in seconds, of the slowest run. The table names the drill that fired an alert where it was not
the alert's own.

`millrace status` shows the alerts that fire. On an edge host, `amtool alert` and `amtool silence
add` are Alertmanager's own commands. Alertmanager sends alerts to the `receiver` that the
environment names, and to nobody without one:

```yaml
# configs/environments/ENVIRONMENT.yaml, in Alertmanager's words
receiver:
  webhook_configs:
    - url: https://pager.example.org/alerts
      http_config: {authorization: {credentials_file: pager-token}}
```

A setting that ends in `_file` names a file in `.millrace/ENVIRONMENT/secrets/` on the operator's
machine. The next `make up` takes both to the edge hosts. It refuses a secret in the
configuration.

| alert | severity | meaning | why | drill | fired after | resolved after | runbook |
|---|---|---|---|---|---|---|---|
"""


def alerts_page(
    plan: Plan,
    files: Mapping[str, AlertFile],
    runbooks: Sequence[Runbook],
    operations: Mapping[str, tuple[str, str]],
    records: Records,
) -> str:
    titles = {runbook.name: runbook.about.title for runbook in runbooks}
    titles |= {name: title for name, (title, _) in operations.items()}
    alerts = [alert for file in files.values() for alert in file.alerts]
    rows = [_row(alert, runbooks, titles, records) for alert in alerts]
    return INTRODUCTION + "\n".join(rows) + "\n" + "\n".join(_rules(plan, files)) + "\n"


def _row(
    alert: Alert, runbooks: Sequence[Runbook], titles: Mapping[str, str], records: Records
) -> str:
    own = [book for book in runbooks if book.about.alert == alert.alert]
    drills = [f"`{book.name}`{_limits(book.about)}" for book in own]
    cells = [
        ", ".join([alert.alert, *alert.labels.values()]),
        alert.severity,
        alert.summary,
        alert.why,
        ", ".join(drills) or f"none: {alert.undrilled}",
        *_measured(alert, {book.name for book in own if not book.about.silent}, records),
        f"[{titles[alert.runbook]}](../runbooks/{alert.runbook}.md)",
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _limits(about: FrontMatter) -> str:
    if about.silent:
        return f" (silent: {about.silent})"
    return "" if LAPTOP in about.environments else f" (in {', '.join(about.environments)})"


def _measured(alert: Alert, own: Collection[str], records: Records) -> tuple[str, str]:
    """Fired and resolved after so many seconds: in its own drills, else in others, with names.

    Rules of one name that labels tell apart are not told apart by a drill.
    """
    times = {name: times for name, r in records.items() if (times := r.times_of(alert.alert))}
    if alert.labels or not times:
        return "–", "–"
    # Without a drill of its own the one that fired it first stands for all.
    mine = {name: times[name] for name in times.keys() & own}
    mine = mine or dict([min(times.items(), key=lambda one: one[1][0])])
    fired = whole(max(fired for fired, _ in mine.values()))
    resolved = [ended for _, ended in mine.values()]
    others = f" (`{name}`)" if (name := next(iter(mine))) not in own else ""
    return fired + others, whole(latest(resolved))


def _rules(plan: Plan, files: Mapping[str, AlertFile]) -> Iterator[str]:
    yield "\n## The rules"
    for group in rules(plan, dict(files))["groups"]:
        yield f"\n### {group['name']}\n\n```"
        for rule in group["rules"]:
            wait = f" for {rule['for']}" if "for" in rule else ""
            yield f"{rule.get('alert') or rule['record']}{wait}: {rule['expr']}"
        yield "```"
