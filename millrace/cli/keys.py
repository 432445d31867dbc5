"""`millrace keys`: who may send events and read insights; both doors follow within seconds."""

import time
from typing import Annotated

import typer

from millrace import completion
from millrace.cluster import operator_key
from millrace.cluster.keys import Use, made_by, registry
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console, write
from millrace.common.durations import parse_duration
from millrace.common.paths import stack_name
from millrace.common.tables import (
    NOTHING,
    Answer,
    Column,
    JsonOption,
    Row,
    Table,
    shown,
    tell,
    time_of,
)
from millrace.keys import (
    adding,
    digest,
    moment,
    new_secret,
    require,
    revoking,
    revoking_old,
    rotating,
)
from millrace.plan import load_plan
from millrace_shared.keys import ALL, OPERATOR, SCOPES, Key, Keys, Secret

app = typer.Typer(
    no_args_is_help=True,
    help="Say who may send events and read insights: list, add, rotate and revoke keys.",
)

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="`millrace keys list` has them.")]
OVERLAP = "24h"


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """Show the keys: what each may write and read, until when, and when it was last used.

    Uses are noted once a minute.
    """
    plan = load_plan(stack_name())
    with registry(plan) as known:
        keys, used = known.keys(), known.used()
    tell(Answer.of(keys=keys_table(plan.environment, keys, used, time.time())), as_json)


@app.command("add")
def add_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and -.")],
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="STREAM",
            help=f"One that it may write; again for more, '{ALL}' for all.",
            autocompletion=completion.streams,
        ),
    ] = None,
    rate: Annotated[
        int, typer.Option(help="Events a second that it may write, through all hosts.", min=0)
    ] = 0,
    public: Annotated[
        bool, typer.Option("--public", help="Everybody can read it, as a page's beacon's.")
    ] = False,
    client_rate: Annotated[
        int, typer.Option(help="Of a public key: events a second from one address.", min=0)
    ] = 0,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help=f"What it may read, of {', '.join(SCOPES)}; again for more.",
            autocompletion=lambda: list(SCOPES),
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="90d|2027-01-31", help="When it ends; a day begins in UTC."),
    ] = None,
) -> None:
    """Add a key, and print its secret: it is shown this once, and kept nowhere.

    millrace keys add shop --stream events --stream clicks --rate 2000 --expires 365d > shop.key

    millrace keys add page --stream events --public --rate 500 --client-rate 5

    millrace keys add dashboard --scope insights
    """
    if bool(client_rate) != public:
        raise typer.BadParameter("--public and --client-rate go together")
    plan, secret, now = load_plan(stack_name()), new_secret(), time.time()
    key = Key(
        [Secret(digest(secret))],
        streams=streams or [],
        events_per_second=rate,
        client_events_per_second=client_rate if public else None,
        scopes=scopes or [],
        expires=moment(expires, now) if expires else None,
        made_at=now,
        made_by=made_by(),
    )
    require(plan, name, key)
    with registry(plan) as known:
        known.change(adding(name, key))
    _hand_out(secret, f"{name}: added; both doors take it within seconds")


@app.command("rotate")
def rotate_command(
    name: KeyName,
    overlap: Annotated[
        str, typer.Option(help="How long the older secret is still taken, such as 30m or 7d.")
    ] = OVERLAP,
) -> None:
    """Give a key another secret, and print it; the older one is taken for a while.

    That of `operator` goes into its file, and is not printed.

    millrace keys rotate shop --overlap 7d > shop.key
    """
    plan, secret, now = load_plan(stack_name()), new_secret(), time.time()
    edit = rotating(name, digest(secret), now, parse_duration(overlap))
    done = f"{name}: has another secret; the older one is taken for {overlap}"
    if name == OPERATOR:
        with operator_key.replacing(plan, secret), registry(plan) as known:
            known.change(edit)
        _say(f"{done}. `millrace up` hands it on to other operators")
        return
    with registry(plan) as known:
        known.change(edit)
    _hand_out(secret, done)


@app.command("revoke")
def revoke_command(
    name: KeyName,
    old: Annotated[
        bool, typer.Option("--old", help="Only the older of its two secrets, after `rotate`.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """End a key for good, or its older secret: whoever has it is refused within seconds.

    `millrace keys list` says when it was last used.

    millrace keys revoke shop --old
    """
    plan = load_plan(stack_name())
    what = f"the older secret of {name}" if old else name
    agree(f"Revoke {what} of {plan.environment}? Whoever uses it is refused then.", yes=yes)
    with registry(plan) as known:
        known.change(revoking_old(name, time.time()) if old else revoking(name))
    _say(f"{what}: revoked; both doors refuse it within seconds")


def keys_table(environment: str, keys: Keys, used: dict[str, Use], now: float) -> Table:
    rows = [_row(name, key, used.get(name), now) for name, key in sorted(keys.items())]
    columns = (
        Column("key", whole=True),
        Column("streams", "writes", _writes),
        Column("scopes", "reads"),
        Column("secrets", show=_secrets),
        Column("expires"),
        Column("used", "last used", _used),
        Column("made_by"),
    )
    return Table(f"{environment}: keys", columns, rows, style=_style)


def _row(name: str, key: Key, use: Use | None, now: float) -> Row:
    valid = list(key.secrets_at(now))
    ends = [one.until for one in valid if one.until is not None]
    return {
        "key": name,
        "streams": key.streams,
        "events_per_second": key.events_per_second,
        "client_events_per_second": key.client_events_per_second,
        "scopes": key.scopes,
        "secrets": len(valid),
        "older_until": time_of(min(ends)) if ends else None,
        "expires": time_of(key.expires) if key.expires is not None else None,
        "used": time_of(use.at) if use else None,
        "used_at": use.door if use else None,
        "made": time_of(key.made_at),
        "made_by": key.made_by,
    }


def _writes(row: Row) -> str:
    if not row["streams"]:
        return NOTHING
    streams = ", ".join("every stream" if one == ALL else one for one in row["streams"])
    client = row["client_events_per_second"]
    public = f"; public, {client:,}/s from an address" if client is not None else ""
    return f"{streams} @ {row['events_per_second']:,}/s{public}"


def _secrets(row: Row) -> str:
    if row["older_until"]:
        return f"{row['secrets']}, the older until {shown(row['older_until'])}"
    return str(row["secrets"]) if row["secrets"] else "none: expired"


def _used(row: Row) -> str:
    return f"{shown(row['used'])}, {row['used_at']}" if row["used"] else NOTHING


def _style(row: Row) -> str:
    return "" if row["secrets"] else "dim"


def _hand_out(secret: str, said: str) -> None:
    """The secret alone on the output, so that it can go to a file; what is said beside it."""
    write(secret)
    _say(f"{said}. Its secret is shown this once")


def _say(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(text)
