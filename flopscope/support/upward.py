"""What records ask of the rooms above them.

A table, a profile or a measurement has methods that judge and show it, and imports nothing that judges or shows. Such a
method calls a function of ``rooms``, which is flopscope.rooms: the package sets it as it is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from flopscope import rooms as rooms
else:
    rooms = None
