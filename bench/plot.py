"""A picture of results: the measured roofline with what was reached under it, and bars of the ratios to peers.

matplotlib is imported when one is drawn: the extra `bench` brings it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kittens.bench.report import OURS, Report, Row
from kittens.errors import ArgumentError, UnavailableError

FORMATS = (".svg", ".png")
#: One colour for ours, then for peers in order.
_COLOURS = ("#c1272d", "#0000a7", "#eecc16", "#008176", "#b3b3b3", "#7a4fa3")


def check(path: str) -> None:
    """Raise if no plot can be made there: ArgumentError for another format, UnavailableError without matplotlib."""
    if Path(path).suffix not in FORMATS:
        raise ArgumentError(f"a plot is written as {' or '.join(FORMATS)}, not as {path}")
    if find_spec("matplotlib") is None:
        raise UnavailableError(
            "plots are drawn by matplotlib, which is missing: pip install 'kittens-gpu[bench]'"
        )


def draw(report: Report, path: str) -> None:
    """Write the plot of a report to a file, whose name says the format."""
    check(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = [row for row in report.rows if not row.error and row.samples]
    if not rows:
        raise ArgumentError("there is nothing to draw: nothing was timed")
    with_work = [row for row in rows if row.flops] if report.roofline is not None else []
    peers = list(dict.fromkeys(p for row in rows for p in row.peers))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate([OURS, *peers])}
    height = max(4.5, 0.9 + 0.2 * sum(max(len(row.peers), 1) for row in rows) + 0.12 * len(rows))
    figure = Figure(figsize=(15 if with_work else 8, height), layout="constrained")
    panels = figure.subplots(1, 2 if with_work else 1, squeeze=False)[0]
    if with_work:
        _roofline(panels[0], report, with_work, colours)
    _bars(panels[-1], rows, colours)
    figure.suptitle(
        f"{report.facts.get('device', report.target)}, {report.facts.get('date', '')}", fontsize=11
    )
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "kittens",
    }  # text as text, and the same file each time
    try:
        with rc_context(settings):
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.endswith(".svg") else None)
    except OSError as error:
        raise ArgumentError(f"cannot write the file {path}: {error.strerror or error}") from None


def _roofline(axes: Any, report: Report, rows: list[Row], colours: dict[str, str]) -> None:
    """Operations a second over operations a byte: the measured limits as lines, each contender as a point."""
    limits = report.roofline
    assert limits is not None
    intensities = [row.flops / row.bytes for row in rows]
    low, high = min(intensities) / 4, max(intensities) * 4
    for unit, peak in sorted(limits.products.items()):
        ridge = peak / limits.bandwidth
        low, high = min(low, ridge / 8), max(high, ridge * 4)
        axes.plot(
            [low, ridge, high], [low * limits.bandwidth / 1e12, peak / 1e12, peak / 1e12], color="black", lw=1
        )
        axes.annotate(
            f"{unit} {peak / 1e12:.0f} TFLOP/s", (high, peak / 1e12), ha="right", va="bottom", fontsize=7
        )
    if not limits.products:
        axes.plot(
            [low, high], [low * limits.bandwidth / 1e12, high * limits.bandwidth / 1e12], color="black", lw=1
        )
    for name, colour in colours.items():
        points = [
            (row.flops / row.bytes, row.flops / row.seconds(name) / 1e12)
            for row in rows
            if name in row.samples
        ]
        if points:
            axes.scatter(*zip(*points, strict=True), s=14, color=colour, label=name, alpha=0.8, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="TFLOP/s, hot")
    axes.set_title(f"roofline: a copy moves {limits.bandwidth / 1e12:.2f} TB/s", fontsize=9)
    axes.legend(fontsize=7, loc="lower right")
    axes.grid(True, which="major", lw=0.3)


def _bars(axes: Any, rows: list[Row], colours: dict[str, str]) -> None:
    """A bar for each workload and peer: how many times as fast as the peer we are, hot."""
    place, ticks, names = 0.0, [], []
    for row in reversed(rows):
        first = place
        for peer in reversed(row.peers):
            axes.barh(place, row.ratio(peer), height=0.8, color=colours[peer])
            axes.annotate(f" {row.ratio(peer):.2f}", (row.ratio(peer), place), va="center", fontsize=6)
            place += 1
        place += 0 if row.peers else 1
        ticks.append((first + place - 1) / 2)
        fraction = row.fraction()
        names.append(row.workload + (f"  {100 * fraction:.0f} %" if fraction == fraction else ""))
        place += 0.6
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set_yticks(ticks, names, fontsize=6)
    axes.set_ylim(-0.8, place)
    axes.set_title("times as fast as the peer, hot; % of the roofline", fontsize=9)
    for name, colour in colours.items():
        if name != OURS:
            axes.barh(0, 0, color=colour, label=name)
    if len(colours) > 1:
        axes.legend(fontsize=7)
