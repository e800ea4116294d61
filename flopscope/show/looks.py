"""The colours and hatches of bounds and parts, from the core's tables, and the style sheet of them.

The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which people with colour blindness can
distinguish.
"""

from __future__ import annotations

from collections.abc import Mapping

from flopscope import _core

BOUNDS: Mapping[str, _core.Bound] = {name: _core.bounds[name] for name in sorted(_core.bounds, key="unknown".__eq__)}
"""In the order of legends: the unknown bound is last."""

# By hatch, as matplotlib names it: the angles of its lines.
STRIPES: Mapping[str, tuple[str, ...]] = {
    **{"/": ("135deg",), "\\": ("45deg",)},
    **{"+": ("0deg", "90deg"), "x": ("135deg", "45deg")},
}


def bound_label(bound: str) -> str:
    """Return the name of a bound in legends."""
    return "bound unknown" if bound == "unknown" else f"{bound}-bound"


def background(colour: str, hatch: str, paper: str) -> str:
    """Return the value of CSS' background: a colour, or with a hatch its lines or dots above the paler colour."""
    if hatch != "." and hatch not in STRIPES:  # none, or one that CSS does not draw
        return colour
    pale = f"color-mix(in srgb, {colour} 45%, {paper})"
    if hatch == ".":
        return f"radial-gradient({colour} 1.5px, transparent 1.7px) 0 0 / 5px 5px, {pale}"
    lines = (f"repeating-linear-gradient({angle}, {colour} 0 2px, transparent 2px 5px)" for angle in STRIPES[hatch])
    return ", ".join([*lines, pale])


def sheet() -> str:
    """Return the style sheet of the page's series, bounds and parts: a variable and a class of each."""
    looks = {
        **{f"series-{number}": colours for number, colours in enumerate(_core.series, 1)},
        **{f"bound-{name}": (bound.light, bound.dark) for name, bound in _core.bounds.items()},
        **{f"part-{name}": (part.light, part.dark) for name, part in _core.parts.items()},
    }
    hatches = {f"part-{name}": part.hatch for name, part in _core.parts.items()}
    rules = [
        f"{root} {{ {' '.join(f'--{name}: {colours[dark]};' for name, colours in looks.items())} }}"
        for dark, root in enumerate((":root", ':root[data-colors="dark"]'))
    ]
    for name in looks:
        value = background(f"var(--{name})", hatches.get(name, ""), "var(--paper)")
        rules.append(f".{name} {{ background: {value}; }}")
    rules += [f"svg .bound-{name} {{ fill: var(--bound-{name}); }}" for name in _core.bounds]
    return "\n".join(rules) + "\n"
