"""A scatter plot of predicted against measured values as SVG, small enough to need no plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.accuracy.points import GROUPS, Point

SIZE, MARGIN = 520, 50
LEGEND_WIDTH, LINE_HEIGHT = 390, 22
# Okabe and Ito's palette, which colour-blind readers can tell apart; one for each group.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#000000",
    "#56b4e9",
    "#e69f00",
    "#999999",
    "#7f4f24",
    "#6a3d9a",
    "#b0a000",
)
TOLERANCE = 0.12


def render_plot(points: Mapping[str, Sequence[Point]]) -> str:
    """Returns an SVG: each group relative to its largest measurement, with a band of 12 % around equality.

    Args:
      points: the points of each group.
    """
    largest = 1.2
    scale = (SIZE - 2 * MARGIN) / largest

    def x(value: float) -> float:
        return round(MARGIN + value * scale, 1)

    def y(value: float) -> float:
        return round(SIZE - MARGIN - value * scale, 1)

    low, high = (1 - TOLERANCE) * largest, largest / (1 + TOLERANCE)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + LEGEND_WIDTH} {SIZE}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<polygon points="{x(0)},{y(0)} {x(largest)},{y(low)} {x(largest)},{y(largest)} {x(high)},{y(largest)}" '
        'fill="#eeeeee"/>',
        f'<path d="M{x(0)} {y(largest)}V{y(0)}H{x(largest)} M{x(0)} {y(0)}L{x(largest)} {y(largest)}" '
        'stroke="#555555" fill="none"/>',
        f'<text x="{SIZE / 2}" y="{SIZE - 15}" text-anchor="middle">measured (1 = the group\'s largest)</text>',
        f'<text transform="translate(18 {SIZE / 2}) rotate(-90)" text-anchor="middle">predicted</text>',
    ]
    for tick in (0.25, 0.5, 0.75, 1.0):
        parts.append(f'<text x="{x(tick)}" y="{y(0) + 16}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{x(0) - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    for number, (name, found) in enumerate(points.items()):
        unit = max(point.measured for point in found)
        colour = COLOURS[number]
        title, line = GROUPS[name].title.partition(",")[0], 2 * MARGIN + LINE_HEIGHT * number
        parts.append(
            f'<circle cx="{SIZE - MARGIN / 2}" cy="{line}" r="4" fill="{colour}"/>'
            f'<text x="{SIZE - MARGIN / 2 + 10}" y="{line + 4}">{title}</text>'
        )
        for point in found:
            where = f'cx="{x(point.measured / unit)}" cy="{y(point.predicted / unit)}" r="4"'
            look = f'fill="none" stroke="{colour}"' if point.is_fit else f'fill="{colour}"'
            parts.append(f"<circle {where} {look}><title>{point.name}</title></circle>")
    note = 2 * MARGIN + LINE_HEIGHT * (len(points) + 1)
    parts.append(f'<text x="{SIZE - MARGIN / 2}" y="{note}" fill="#555555">hollow: fitted; band: within 12 %</text>')
    return "\n".join([*parts, "</svg>", ""])
