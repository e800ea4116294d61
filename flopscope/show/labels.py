"""Placement of labels in plots by matplotlib: none covers another, a mark or the border of the axes.

All boxes are in display coordinates (pixels), as rendered. The result depends on the input alone.
"""

from __future__ import annotations

import functools
import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from flopscope.support.safe import printable

_T = TypeVar("_T")
LONGEST_TITLE = 160
STEP = 6.0  # pixels between the boxes along a line
GAP = 1.5  # pixels between boxes
# Places around a mark: distances in points, and directions in the order of preference.
DISTANCES = (5, 12, 20, 31, 44, 60, 80, 104, 132, 166, 206, 252)
NEAR = 1  # the first distances need no leader
DIRECTIONS = tuple(
    (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    for angle in (0, 180, 30, -30, 150, -150, 90, -90, 60, -60, 120, -120, 15, -15, 165, -165)
)
FAR_COST, LINE_COST, LEADER_COST = 1.0, 2.5, 4.0

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def without_tex(draw: Callable[..., _T]) -> Callable[..., _T]:
    """Have a function draw with TeX switched off, ticks included: names may hold any text, and extents are measured."""

    @functools.wraps(draw)
    def drawn(*arguments: Any, **options: Any) -> _T:
        try:
            from matplotlib import rcParams
        except ImportError:
            return draw(*arguments, **options)  # raises the error that names the package
        # Not rc_context(), which would undo what a backend sets when the first figure chooses it.
        before = rcParams["text.usetex"]
        rcParams["text.usetex"] = False
        try:
            return draw(*arguments, **options)
        finally:
            rcParams["text.usetex"] = before

    return drawn


def shorten(text: str, longest: int) -> str:
    """Return printable text of at most ``longest`` characters."""
    shown = printable(text[: longest + 1])
    return shown if len(shown) <= longest and len(text) <= longest else f"{shown[: longest - 3]}..."


def arrange(ax: Any) -> None:
    """Run the layout of the figure, which moves the axes, so that extents are those of the final picture."""
    figure = ax.figure.figure
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)


def set_title(ax: Any, text: str, **look: Any) -> None:
    """Set the title, in as many lines as the axes' width requires."""
    shown = shorten(text, LONGEST_TITLE)
    title = ax.set_title(shown, **look)
    for _ in range(3):  # the lines of the title change the layout
        arrange(ax)
        room, wide = ax.get_window_extent().width, title.get_window_extent().width
        if wide <= room or room <= 0:
            break
        longest = max(map(len, title.get_text().split("\n")))
        title.set_text("\n".join(textwrap.wrap(shown, max(int(0.97 * longest * room / wide), 12))))


def message(ax: Any, text: str, **look: Any) -> None:
    """Write a text that says why there is nothing to draw, in the middle of the axes."""
    shown = "\n".join(textwrap.wrap(shorten(text, 400), 60))
    ax.text(0.5, 0.5, shown, transform=ax.transAxes, ha="center", va="center", gid="message", **look)


def boxes_of(thing: Any) -> list[Box]:
    """Return the boxes that an artist covers: one, or many along a line or a rotated text."""
    if hasattr(thing, "get_xydata"):
        return _boxes_along(thing.get_transform().transform(thing.get_xydata()))
    box = thing.get_window_extent()
    angle = math.radians(getattr(thing, "get_rotation", lambda: 0.0)())
    if not math.sin(angle) * math.cos(angle):
        return [(box.x0, box.y0, box.x1, box.y1)]
    # The text is a bar of height h along the diagonal of its box.
    high = thing.get_fontsize() * thing.figure.dpi / 72
    rising = math.sin(angle) * math.cos(angle) > 0
    y0, y1 = (box.y0, box.y1) if rising else (box.y1, box.y0)
    half = high / 2
    inner = [(box.x0 + half, y0 + math.copysign(half, y1 - y0)), (box.x1 - half, y1 - math.copysign(half, y1 - y0))]
    return [(x0 - half, low - half, x1 + half, top + half) for x0, low, x1, top in _boxes_along(inner)]


def _boxes_along(points: Any) -> list[Box]:
    boxes = []
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if not math.isfinite(x0 + y0 + x1 + y1):
            continue
        parts = min(max(math.ceil(min(abs(x1 - x0), abs(y1 - y0)) / STEP), 1), 400)
        for part in range(parts):
            xs = x0 + (x1 - x0) * part / parts, x0 + (x1 - x0) * (part + 1) / parts
            ys = y0 + (y1 - y0) * part / parts, y0 + (y1 - y0) * (part + 1) / parts
            boxes.append((min(xs), min(ys), max(xs), max(ys)))
    return boxes


class Room:
    """The free room in axes.

    ``taken`` boxes must not be covered; ``lines`` are crossed only where there is no other place.
    """

    def __init__(self, ax: Any) -> None:
        self.ax = ax
        inside = ax.get_window_extent()
        self.inside = (inside.x0 + 1, inside.y0 + 1, inside.x1 - 1, inside.y1 - 1)
        self.taken: list[Box] = []
        self.lines: list[Box] = []

    def take(self, boxes: Iterable[Box]) -> None:
        self.taken += boxes

    def cross(self, boxes: Iterable[Box]) -> None:
        self.lines += boxes

    def costs(self, boxes: Sequence[Box]) -> list[float]:
        """Return the cost of each box: infinite where it covers something or leaves the axes."""
        import numpy

        tried = numpy.asarray(boxes, dtype=float).reshape(-1, 4)
        x0, y0, x1, y1 = self.inside
        bad = (tried[:, 0] < x0) | (tried[:, 1] < y0) | (tried[:, 2] > x1) | (tried[:, 3] > y1)
        bad |= _overlap(tried, self.taken)
        return list(numpy.where(bad, math.inf, LINE_COST * _overlap(tried, self.lines)).tolist())

    def first(self, boxes: Sequence[Sequence[Box]]) -> int | None:
        """Return the first of the best candidates, each of several boxes; None if all cover something."""
        costs = [max(self.costs(candidate)) for candidate in boxes]
        least = min(costs, default=math.inf)
        return None if math.isinf(least) else costs.index(least)

    def covered(self, box: Box) -> int:
        """Return how many of the taken boxes a box covers."""
        x0, y0, x1, y1 = box
        return sum(x0 < other[2] and other[0] < x1 and y0 < other[3] and other[1] < y1 for other in self.taken)

    def settle(self, text: Any, places: Sequence[_T], move: Callable[[_T], None]) -> None:
        """Move a text to the first of the best places and take its room; remove it if it covers something in all."""
        boxes = []
        for place in places:
            move(place)
            boxes.append(boxes_of(text))
        best = self.first(boxes)
        if best is None:
            text.remove()
            return
        move(places[best])
        self.take(boxes[best])

    def around(self, x: float, y: float, radius: float, size: tuple[float, float]) -> tuple[Box, bool] | None:
        """Return the box for a text of that size beside a mark, and whether it needs a leader; None: no room.

        x, y, radius: of the mark.
        """
        pixels = self.ax.figure.dpi / 72
        wide, high = size
        tried: list[tuple[float, Box, bool]] = []
        for number, distance in enumerate(DISTANCES):
            for order, (dx, dy) in enumerate(DIRECTIONS):
                away = radius + distance * pixels
                middle = x + dx * (away + wide / 2), y + dy * (away + high / 2)
                box = (middle[0] - wide / 2, middle[1] - high / 2, middle[0] + wide / 2, middle[1] + high / 2)
                tried.append((FAR_COST * max(number + 1 - NEAR, 0) + order / 1000, box, number >= NEAR))
        found: tuple[float, Box, bool] | None = None
        covered = self.costs([box for _, box, _ in tried])
        for (cost, box, led), extra in sorted(zip(tried, covered, strict=True), key=lambda one: one[0][0] + one[1]):
            if math.isinf(extra) or (found is not None and cost + extra >= found[0]):
                break
            if led and self._leader_covers(x, y, radius, box):
                extra += LEADER_COST
            if found is None or cost + extra < found[0]:
                found = cost + extra, box, led
        return None if found is None else found[1:]

    def _leader_covers(self, x: float, y: float, radius: float, box: Box) -> bool:
        import numpy

        end = nearest(x, y, box)
        length = math.hypot(end[0] - x, end[1] - y) or 1.0
        from_mark = (x + (end[0] - x) * min(radius / length, 1), y + (end[1] - y) * min(radius / length, 1))
        return bool(_overlap(numpy.asarray(_boxes_along([from_mark, end])).reshape(-1, 4), self.taken, -1.0).any())


def nearest(x: float, y: float, box: Box) -> tuple[float, float]:
    """Return the point of a box that is nearest to a point."""
    return min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])


def _overlap(tried: Any, others: Sequence[Box], gap: float = GAP) -> Any:
    """Return for each tried box whether it comes closer to one of the others than the gap."""
    import numpy

    if not others:
        return numpy.zeros(len(tried), dtype=bool)
    fixed = numpy.asarray(others, dtype=float)
    apart = tried[:, None, 0] >= fixed[:, 2] + gap
    apart |= tried[:, None, 2] <= fixed[:, 0] - gap
    apart |= tried[:, None, 1] >= fixed[:, 3] + gap
    apart |= tried[:, None, 3] <= fixed[:, 1] - gap
    return ~apart.all(axis=1)
