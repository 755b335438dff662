"""How much memory the device of this process can still give."""

import os
from dataclasses import dataclass
from pathlib import Path

import jax

HEADROOM_BYTES = 1 << 30
"""What ``--kv-capacity auto`` leaves free."""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """``memory`` bytes of device ``name``, of which the process needs ``runtime`` beside its arrays."""

    name: str
    memory: int
    runtime: int = 0


def present_budget() -> MemoryBudget:
    """Of the first device, now. An accelerator's is what jax's allocator may still take (the runtime lies
    outside of it); a CPU's what the machine, or this process's control group, has available."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return MemoryBudget(device.device_kind, int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0)))
    return MemoryBudget(device.device_kind, host_memory())


def host_memory(root: Path = Path("/")) -> int:
    """Bytes that can be taken without swapping; files in the page cache make way and count as available."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(available, *_group_memory(root), available)


def _group_memory(root: Path) -> list[int]:
    """What each control group (version 2) around this process leaves it; none where there is no limit."""
    try:
        entries = (root / "proc/self/cgroup").read_text().splitlines()
        path = next(entry.removeprefix("0::/") for entry in entries if entry.startswith("0::/"))
    except (OSError, StopIteration):
        return []
    top = root / "sys/fs/cgroup"
    group = top / path
    left = []
    while True:
        left += _left_in(group)
        if group == top:
            return left
        group = group.parent


def _left_in(group: Path) -> list[int]:
    try:
        limit = int((group / "memory.max").read_text())  # ValueError for "max": no limit
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return [max(0, limit - used + int(stat.get("inactive_file", 0)))]
    except (OSError, ValueError):
        return []
