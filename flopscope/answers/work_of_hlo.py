"""The work of a compiled JAX program, from the text of its HLO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.support.safe import shown
from flopscope.support.suggest import suggesting

if TYPE_CHECKING:
    import pandas

    Text = str | bytes


@suggesting
def work_of_hlo(text: Text | Iterable[Text] | Mapping[str, Text]) -> pandas.DataFrame:
    """Return the FLOPs and bytes of each instruction that a compiled program of XLA runs, without running it.

    text: optimised HLO, as ``jax.jit(f).lower(x).compile().as_text()`` gives it on any machine; or several modules: a
        list, or a dict of name to text, whose names then stand in the column ``module``.

    One row per instruction of the schedule that runs, in order, those in loops and called computations included:

    - module, name, opcode: of the instruction ("jit_step", "fusion.12", "fusion"). A fusion counts as one, with the
      FLOPs of its body; its bytes are those that it must read and write once.
    - scope: the ``op_name`` of its metadata, "jit(step)/jvp(attention)/dot_general"; None: unknown.
    - source: the file and line of the program, "train.py:12", with the path as HLO has it; None: unknown.
    - calls: how often it runs in one execution of its module: loops multiplied out, each branch of a conditional as if
      taken. NaN: in a loop whose trip count XLA does not know.
    - flops, bytes_read, bytes_written: work of all these calls, by the conventions of the other rules. NaN: unknown.
    - product_flops: the part of flops in matrix products and convolutions, also in products that XLA has rewritten as
      multiplications and sums (named ``dot_general``); 0: none.

    Parameters, constants, tuples and bitcasts do nothing and have no row; an asynchronous instruction has one, where it
    starts. Raise ValueError, with the line, for a text that is no HLO, such as that of a program that was not compiled.
    Raise TypeError for anything but text.

        compiled = jax.jit(step).lower(params, batch).compile()
        work = fs.work_of_hlo(compiled.as_text())
        print(work.groupby("scope")[["flops", "bytes_read"]].sum())
    """
    import pandas

    if isinstance(text, (str, bytes)):
        return pandas.DataFrame(_core._work_of_hlo(text))
    if not isinstance(text, Iterable):
        raise TypeError(f"text must be HLO as text, not {shown(text)}")
    named = isinstance(text, Mapping)
    frames = [
        pandas.DataFrame({**_columns(one, name), "module": name} if named else _columns(one, name))
        for name, one in (text.items() if isinstance(text, Mapping) else enumerate(text))
    ]
    return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(_core._work_of_hlo(_NOTHING))


_NOTHING = "HloModule none ENTRY none { ROOT nothing = () tuple() }"


def _columns(text: object, name: str | int) -> dict[str, Any]:
    """Return the columns of one of several modules, which has a name or a number."""
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"module {name!r} must be HLO as text, not {shown(text)}")
    try:
        return _core._work_of_hlo(text)
    except ValueError as error:
        raise ValueError(f"module {name!r}: {error}") from None
