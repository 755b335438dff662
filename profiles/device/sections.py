"""The sections of a device check, the most valuable first, and how the time is shared out."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiles.device.steps import Settings, Step


@dataclass(frozen=True, slots=True)
class Section:
    """``module`` has ``steps(settings)``. ``share`` is its part of the time, in any unit; what it leaves over
    is the later ones'."""

    name: str
    module: str
    share: float

    def steps(self, settings: Settings) -> Sequence[Step]:
        """Imports what the section needs, jax among it."""
        steps: Sequence[Step] = importlib.import_module(f"profiles.device.{self.module}").steps(settings)
        return steps


DEVICE, KERNELS, DENSE, DEMO, SERVE, SPARSE = (
    "device",
    "kernels",
    "Qwen3.6-27B, cut",
    "SmolLM2",
    "serve",
    "Qwen3.6-35B-A3B, cut",
)
SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        Section(DEVICE, "facts", 30),
        Section(KERNELS, "kernels", 110),
        Section(DENSE, "hybrid", 80),
        Section(DEMO, "demo", 60),
        Section(SERVE, "serving", 35),
        Section(SPARSE, "hybrid", 45),
    )
}


def budget(name: str, chosen: Sequence[str], seconds_left: float) -> float:
    """Seconds for section ``name`` when it and those after it in ``chosen`` have ``seconds_left``."""
    coming = chosen[chosen.index(name) :]
    return seconds_left * SECTIONS[name].share / sum(SECTIONS[other].share for other in coming)
