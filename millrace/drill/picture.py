"""Interruptions over time as a picture: a strip for each plane, red where it was silent."""

import io

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from millrace.drill.gaps import over
from millrace.drill.report import Gaps
from millrace.drill.timeline import Timeline

WORKS, SILENT, TEXT, LINE = "#d9ead3", "#cc2936", "#374151", "#6b7280"
# A silence is red when it is longer than the floor by this factor, or than a second without one.
FACTOR, LEAST_SECONDS, WITHOUT_FLOOR_SECONDS = 1.5, 0.3, 1.0
SHOWN_MARKS = {"inject": "fault", "recover": "recover", "rollback": "healed"}


def gaps_svg(timeline: Timeline, floor: Gaps, worst: Gaps) -> str:
    """The whole drill from its first floor to the last heal, as an SVG document."""
    start = timeline.episodes[0].began
    end = timeline.episodes[-1].span.until
    figure, axes = plt.subplots(figsize=(11, 1.2 + 0.42 * len(worst)))
    for row, plane in enumerate(worst):
        axes.barh(row, end - start, height=0.6, color=WORKS)
        least = WITHOUT_FLOOR_SECONDS
        if plane in floor:
            least = max(LEAST_SECONDS, FACTOR * floor[plane])
        seen = timeline.successes[plane]
        silent = [gap for times in seen for gap in over(times, start, end, least)]
        axes.broken_barh(
            [(gap.start - start, gap.seconds) for gap in silent],
            (row - 0.3, 0.6),
            color=SILENT,
            linewidth=0.5,
        )
        axes.text(1.01 * (end - start), row, f"{worst[plane]:.1f} s", va="center", color=TEXT)
    _marks(timeline, start, axes)
    axes.set_yticks(range(len(worst)), worst)
    axes.invert_yaxis()
    axes.set_xlim(0, end - start)
    axes.set_xlabel("seconds since the first floor began; right: longest interruption of a run")
    axes.tick_params(length=0, colors=TEXT)
    for side in axes.spines.values():
        side.set_visible(False)
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return out.getvalue()


def _marks(timeline: Timeline, start: float, axes: Axes) -> None:
    for episode in timeline.episodes:
        for mark in episode.marks:
            if mark.name in SHOWN_MARKS:
                # A fault begins with its step, everything else is done when its step ends.
                moment = (mark.start if mark.name == "inject" else mark.end) - start
                axes.axvline(moment, color=LINE, linewidth=0.8, linestyle=":")
                axes.annotate(
                    SHOWN_MARKS[mark.name],
                    (moment, 1.0),
                    xycoords=("data", "axes fraction"),
                    rotation=35,
                    fontsize=8,
                    color=LINE,
                )
