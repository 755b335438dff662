"""Where the device time of a program goes, by named scope: a capture read with the program's own HLO.

The profiler names instructions, the compiled program's text says which ``jax.named_scope`` each came
from. An instruction that runs others (a call, a conditional) is charged only what they leave over.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

OTHER = "other"
_INSTRUCTION = re.compile(r'^\s*(?:ROOT )?%?([\w.\-]+) = .*op_name="([^"]*)"', re.MULTILINE)
_NOT_A_SCOPE = re.compile(r".*\(.*|layer_\d+$|body$|cond$|while$|branch_\d+_fun$|closed_call$")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds and executions in ``num_runs`` runs of the program."""

    seconds: float
    count: int
    num_runs: int

    @property
    def seconds_per_run(self) -> float:
        return self.seconds / self.num_runs

    @property
    def count_per_run(self) -> float:
        return self.count / self.num_runs


@dataclass(frozen=True, slots=True)
class _Span:
    start: float
    end: float
    module: str
    name: str
    run: int


def scopes(hlo: str) -> dict[str, tuple[str, str]]:
    """Instruction name to (scope, operation): the outermost named scope that is not a layer's number, and
    the innermost below it, or the primitive where there is none."""
    return {name: _place(path) for name, path in _INSTRUCTION.findall(hlo)}


def device_seconds(capture: Path, module: str, hlo: str) -> dict[tuple[str, str], Cost]:
    """Cost by (scope, operation) of the programs called ``module`` in a capture's folder, the dearest
    first. ``hlo`` is the text of one of them; what it does not know counts as ``other``."""
    places = scopes(hlo)
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    runs: set[int] = set()
    for span, own in _own_times(_spans(capture)):
        if span.module != module:
            continue
        place = places.get(span.name, (OTHER, OTHER))
        seconds[place] += own
        counts[place] += 1
        runs.add(span.run)
    costs = {place: Cost(seconds[place], counts[place], len(runs)) for place in seconds}
    return dict(sorted(costs.items(), key=lambda item: -item[1].seconds))


def by_scope(costs: Mapping[tuple[str, str], Cost]) -> dict[str, Cost]:
    """The same with the operations of a scope added up."""
    summed: dict[str, Cost] = {}
    for (scope, _), cost in costs.items():
        old = summed.get(scope, Cost(0.0, 0, cost.num_runs))
        summed[scope] = Cost(old.seconds + cost.seconds, old.count + cost.count, cost.num_runs)
    return dict(sorted(summed.items(), key=lambda item: -item[1].seconds))


def _place(path: str) -> tuple[str, str]:
    *outer, operation = path.split("/")
    names = [name for name in outer if not _NOT_A_SCOPE.match(name)]
    return (names[0] if names else OTHER), (names[-1] if len(names) > 1 else operation)


def _spans(capture: Path) -> Iterator[list[_Span]]:
    """Device instructions, a list a thread, in order of time."""
    for file in capture.glob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines:
                yield sorted(_instructions(line.events), key=lambda span: (span.start, -span.end))


def _instructions(events: Iterable[Any]) -> Iterator[_Span]:
    for event in events:
        facts = dict(event.stats)
        if "hlo_op" in facts and "run_id" in facts:
            start = event.start_ns * 1e-9
            end = start + event.duration_ns * 1e-9
            yield _Span(start, end, str(facts["hlo_module"]), str(facts["hlo_op"]), int(facts["run_id"]))


def _own_times(threads: Iterable[list[_Span]]) -> Iterator[tuple[_Span, float]]:
    """Each span with its length less that of the spans directly inside it."""
    for spans in threads:
        open_spans: list[tuple[_Span, list[float]]] = []
        for span in spans:
            while open_spans and open_spans[-1][0].end <= span.start:
                done, inner = open_spans.pop()
                yield done, max(done.end - done.start - sum(inner), 0.0)
            if open_spans:
                open_spans[-1][1].append(span.end - span.start)
            open_spans.append((span, []))
        for done, inner in open_spans:
            yield done, max(done.end - done.start - sum(inner), 0.0)
