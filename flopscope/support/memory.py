"""How much memory this process has taken for itself, and how much it may still take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

# files of a control group: the limit, what is used, and in memory.stat the page cache that it can drop
_FILES = "memory.max", "memory.current", "inactive_file"
_FILES_OF_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
_UNLIMITED = 1 << 60


def available_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int | None:
    """Return the bytes that this process may still use: the machine's, or those of its container if they are fewer.

    None if the system does not say.
    """
    found = re.search(r"MemAvailable:\s+(\d+) kB", _text(f"{proc}/meminfo"))
    bounds = [] if found is None else [int(found[1]) << 10]
    return min([*bounds, *_left_in_groups(proc, groups)], default=None)


def private_growth(proc: str = "/proc/self") -> float:
    """Return a number of bytes of which only differences have a meaning: how much the process grew by itself.

    That is the memory it shares with no file or process, less what came from files: what it has read, and what it has
    mapped, of which the copies are its own. 0 if the system does not say.
    """
    pages = _text(f"{proc}/statm").split()
    if len(pages) < 3:
        return 0.0
    resident, shared = int(pages[1]), int(pages[2])
    read = re.search(r"rchar: (\d+)", _text(f"{proc}/io"))
    return float((resident - 2 * shared) * os.sysconf("SC_PAGE_SIZE") - (int(read[1]) if read else 0))


def _left_in_groups(proc: str, groups: str) -> Iterator[int]:
    """Yield what each control group around this process has left; page cache that it can drop counts as left."""
    for line in _text(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (f"{groups}/memory", _FILES_OF_VERSION_1) if controllers else (groups, _FILES)
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):  # in a container, the path may be the host's: the root is its own
            folder = "/".join([root, *parts[:depth]])
            most, used = (_text(f"{folder}/{name}").strip() for name in names[:2])
            if most.isdigit() and used.isdigit() and int(most) < _UNLIMITED:
                cache = re.search(rf"^{names[2]} (\d+)$", _text(f"{folder}/memory.stat"), re.MULTILINE)
                yield max(0, int(most) - int(used) + (int(cache[1]) if cache else 0))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
