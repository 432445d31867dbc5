"""The documents' pictures, as SVG: what runs where, and what stands on what. Pure."""

from collections.abc import Sequence
from html import escape

from millrace.plan import Host, Plan, Service

# The topology: a column for each zone, a row for each group. Lengths in px.
LABEL, COLUMN, ROW, GAP, TOP = 120, 260, 64, 10, 44
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d")
# The layers: a row for each, and beside the plan's row what is made of it.
LAYER, WIDTH, PLAN, BESIDE = 34, 420, "plan", 330
MADE_OF_THE_PLAN = (
    ("infra/", "hosts: Docker here, AWS there"),
    ("ansible/", "services, by roles and playbooks"),
    ("spark-jobs/ · job-gateway/", "insights, and who computes them"),
    ("collector/ · insight-api/", "events in, answers out"),
)
INK, PAPER, FRAME = "#111827", "#ffffff", "#4c78a8"


def everywhere(plan: Plan) -> list[Service]:
    return [s for s in plan.services.values() if len(s.hosts) == len(plan.hosts)]


def own_units(plan: Plan, host: Host) -> list[str]:
    """Returns what a host runs and not every other one does, too."""
    own = [plan.services[name] for name in host.services]
    return [service.unit for service in own if service not in everywhere(plan)]


def layers_svg(layers: Sequence[Sequence[str]]) -> str:
    """The toolkit's rooms, one layer below the other, and beside the plan what follows it.

    Args:
        layers: names of rooms, the highest layer first.
    """
    height = len(layers) * (LAYER + GAP) + 2 * GAP
    width = WIDTH + BESIDE + 7 * GAP
    parts = [_svg(width, height, "The toolkit's layers, and what is made of the plan")]
    for row, layer in enumerate(layers):
        y = GAP + row * (LAYER + GAP)
        share = (WIDTH - GAP * (len(layer) - 1)) / len(layer)
        parts += [
            _box(GAP + number * (share + GAP), y, share, name, "", filled=name == PLAN)
            for number, name in enumerate(layer)
        ]
    start = next(row for row, layer in enumerate(layers) if PLAN in layer)
    y_plan = GAP + start * (LAYER + GAP) + LAYER / 2
    for number, (name, what) in enumerate(MADE_OF_THE_PLAN):
        y = GAP + number * 2 * (LAYER + GAP) + LAYER
        x = WIDTH + 6 * GAP
        parts.append(
            f'<path d="M{WIDTH + GAP} {y_plan} C{WIDTH + 4 * GAP} {y_plan} {WIDTH + 3 * GAP} '
            f'{y + LAYER / 2 + 8} {x} {y + LAYER / 2 + 8}" fill="none" stroke="{FRAME}" '
            'stroke-width="1.5"/>'
        )
        parts.append(_box(x, y, BESIDE, name, what))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg(width: float, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="ui-sans-serif, system-ui, sans-serif">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>'
    )


def _box(x: float, y: float, width: float, name: str, what: str, *, filled: bool = False) -> str:
    """A room; with ``what`` it has a second line."""
    height = LAYER + 16 * bool(what)
    fill, ink = (FRAME, PAPER) if filled else (PAPER, INK)
    second = (
        f'<text x="{x + width / 2:g}" y="{y + 38:g}" text-anchor="middle" font-size="12" '
        f'fill="#4b5563">{escape(what)}</text>'
    )
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="6" fill="{fill}" '
        f'stroke="{FRAME}" stroke-width="1.5"/>'
        f'<text x="{x + width / 2:g}" y="{y + 21:g}" text-anchor="middle" font-size="13" '
        f'font-weight="600" fill="{ink}">{escape(name)}</text>' + second * bool(what)
    )


def topology_svg(plan: Plan) -> str:
    """Zones side by side, groups below one another: what one lost zone takes away is a column."""
    groups = list(dict.fromkeys(host.group for host in plan.hosts))
    width = LABEL + len(plan.zones) * (COLUMN + GAP)
    height = TOP + len(groups) * (ROW + GAP)
    parts = [_svg(width, height, "Hosts and services by zone")]
    for number, zone in enumerate(plan.zones):
        x = LABEL + number * (COLUMN + GAP)
        parts.append(
            f'<rect x="{x}" y="8" width="{COLUMN}" height="{height - 12}" rx="10" fill="#f3f4f6"/>'
            f'<text x="{x + COLUMN / 2}" y="30" text-anchor="middle" font-size="15" '
            f'font-weight="600" fill="#374151">zone {escape(zone)}</text>'
        )
    for row, group in enumerate(groups):
        y = TOP + row * (ROW + GAP)
        colour = COLOURS[row % len(COLOURS)]
        parts.append(
            f'<text x="12" y="{y + ROW / 2 + 5}" font-size="15" font-weight="600" '
            f'fill="{colour}">{escape(group)}</text>'
        )
        for host in plan.hosts:
            if host.group == group:
                x = LABEL + plan.zones.index(host.zone) * (COLUMN + GAP) + 8
                parts.append(_host_box(plan, host.name, x, y, colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _host_box(plan: Plan, name: str, x: float, y: float, colour: str) -> str:
    units = own_units(plan, plan.host(name))
    middle = (len(units) + 1) // 2 if len(units) > 2 else len(units)
    lines = [" · ".join(units[:middle]), " · ".join(units[middle:])]
    return (
        f'<rect x="{x}" y="{y}" width="{COLUMN - 16}" height="{ROW - 6}" rx="6" fill="#ffffff" '
        f'stroke="{colour}" stroke-width="1.5"/>'
        f'<text x="{x + 10}" y="{y + 19}" font-size="13" font-weight="600" fill="#111827">'
        f"{escape(name)}</text>"
        + "".join(
            f'<text x="{x + 10}" y="{y + 35 + 14 * i}" font-size="11" fill="#4b5563">'
            f"{escape(line)}</text>"
            for i, line in enumerate(lines)
            if line
        )
    )
