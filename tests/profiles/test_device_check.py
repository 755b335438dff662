"""The device check: its table, its isolation of failures, and every section rehearsed on the CPU."""

import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.errors import ConfigError
from profiles import device_check
from profiles.device import kernels, sections, supervise
from profiles.device.kernel import XLA, compile_in, measure
from profiles.device.kernels import families
from profiles.device.report import Row, as_json, failures, markdown
from profiles.device.steps import DeviceLostError, Journal, Limits, Settings, Step, run_steps


def settings_of(folder, section="kernels", seconds=math.inf):
    limits = Limits(bandwidth=1e10, operations=1e11)
    return Settings(section, True, time.monotonic() + seconds, folder, limits)


def test_table_has_a_row_for_each_figure_and_says_what_failed():
    rows = [
        Row("kernels", "a | b", "ok", 250.0, "µs", limit=100.0, plain=1000.0, error=2e-3, tolerance=1e-2),
        Row("model", "prefill", "measured", 12_345.6, "tok/s", limit=50_000.0, nbytes=1_500_000),
        Row("model", "text", "FAILED", note="differs\nhere"),
    ]
    lines = markdown("a card", rows).splitlines()
    assert "| a / b | ok | 250 µs | 100 µs | 40% | 1,000 µs |  |  | 2.0e-03 (at most 1e-02) |  |" in lines
    assert "| prefill |  | 12,346 tok/s | 50,000 tok/s | 25% |  | 1.5 MB |  |  |  |" in lines
    assert "| text | **FAILED** |  |  |  |  |  |  |  | FAILED: differs here |" in lines
    assert {line.count("|") for line in lines[2:]} == {lines[2].count("|")}
    record = json.loads(json.dumps(as_json({"device": "a card"}, rows)))
    assert record["ok"] is False
    assert [row["name"] for row in record["rows"]] == ["a | b", "prefill", "text"]


def failing():
    yield Row("kernels", "before", "ok")
    raise ValueError("a reason\nand more")


def working():
    yield Row("kernels", "works", "ok")


def read(path):
    return supervise.Outcome.read(path)


def test_a_failing_step_is_a_row_and_the_rest_goes_on(tmp_path):
    steps = [Step("broken", failing), Step("whole", working)]
    run_steps(settings_of(tmp_path), steps, Journal(tmp_path / "j"))
    outcome = read(tmp_path / "j")
    assert outcome.is_done
    assert [(row.name, row.status) for row in outcome.rows] == [
        ("before", "ok"),
        ("broken", "FAILED"),
        ("works", "ok"),
    ]
    assert failures(outcome.rows)[0].note == "ValueError: a reason"


def test_without_time_left_steps_are_skipped_by_name(tmp_path):
    run_steps(settings_of(tmp_path, seconds=-1.0), [Step("late", working)], Journal(tmp_path / "j"))
    outcome = read(tmp_path / "j")
    assert [(row.name, row.status) for row in outcome.rows] == [("late", "skipped")]
    assert outcome.is_done


def test_a_lost_device_ends_the_process_that_lost_it(tmp_path):
    steps = [Step("broken", failing), Step("whole", working)]
    with pytest.raises(DeviceLostError, match="broken"):
        run_steps(settings_of(tmp_path), steps, Journal(tmp_path / "j"), is_alive=lambda: False)
    assert not read(tmp_path / "j").is_done


CHILD = """
import argparse, os, sys, time
from pathlib import Path
from profiles.device.report import Row
from profiles.device.steps import Journal, Settings, Step, run_steps

parser = argparse.ArgumentParser()
for flag in ("--section", "--seconds", "--journal", "--mode"):
    parser.add_argument(flag)
parser.add_argument("--skip", action="append", default=[])
args = parser.parse_args()

def works():
    yield Row(args.section, "works", "ok")

def breaks():
    if args.mode == "crash":
        print("a kernel went wrong", file=sys.stderr, flush=True)
        os._exit(11)
    yield Row(args.section, "unbroken", "ok")

if args.mode == "never starts":
    sys.exit("no such device")
steps = [Step("first", works), Step("second", breaks), Step("third", works)]
settings = Settings(args.section, True, time.monotonic() + 600, Path(args.journal).parent)
run_steps(settings, [step for step in steps if step.name not in args.skip], Journal(Path(args.journal)))
"""


def supervised(tmp_path, monkeypatch, mode):
    (tmp_path / "fake_child.py").write_text(CHILD)
    root = device_check.__file__.rsplit("/profiles/", 1)[0]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
    arguments = [f"--mode={mode}"]
    rows = supervise.supervise("a.b", 60.0, tmp_path, arguments, module="fake_child")
    return [(row.name, row.status) for row in rows], rows


def test_a_crash_is_a_row_and_the_steps_after_it_run(tmp_path, monkeypatch):
    seen, rows = supervised(tmp_path, monkeypatch, "crash")
    assert seen == [("works", "ok"), ("second", "FAILED"), ("works", "ok")]
    assert rows[1].note == "the process ended (exit 11): a kernel went wrong"


def test_a_section_past_its_time_is_killed_and_says_in_which_step(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "GRACE", 0.0)
    assert (
        supervise._run_child([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", 0.0)
        is None
    )

    def hang(command, log, seconds):
        journal = Journal(tmp_path / "kernels-0.jsonl")
        journal.write("plan", steps=["first", "second", "third"])
        for event in ("begin", "end"):
            journal.write(event, step="first")
        journal.write("begin", step="second")

    monkeypatch.setattr(supervise, "_run_child", hang)
    rows = supervise.supervise("kernels", 60.0, tmp_path)
    assert [(row.name, row.status) for row in rows] == [("second", "FAILED"), ("third", "skipped")]
    assert rows[0].note == "not done 60 s after the section began; --seconds gives it more"


def test_a_process_that_cannot_start_is_tried_once(tmp_path, monkeypatch):
    seen, rows = supervised(tmp_path, monkeypatch, "never starts")
    assert seen == [("start", "FAILED")]
    assert "no such device" in rows[0].note


def test_time_is_shared_and_what_is_left_over_goes_on():
    names = list(sections.SECTIONS)
    first = sections.budget(names[0], names, 360.0)
    assert first < 60
    assert sections.budget(names[-1], names, 100.0) == 100.0
    assert sections.budget(names[1], names, 360.0) > sections.budget(names[1], names, 360.0 - first)


def test_the_command_writes_both_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    out = tmp_path / "out"
    assert device_check.main(["--rehearse", "--only", "device", "--out", str(out)]) == 0
    record = json.loads((out / "device_check.json").read_text())
    assert record["ok"]
    assert record["platform"] == "cpu"
    assert record["rehearsal"] is True
    assert {"copy", "read"} <= {row["name"] for row in record["rows"]}
    assert (out / "device_check.md").read_text() in capsys.readouterr().out


def test_true_sizes_are_refused_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert device_check.main(["--out", str(tmp_path)]) == 1
    rows = json.loads((tmp_path / "device_check.json").read_text())["rows"]
    assert [row["name"] for row in rows if row["status"] == "FAILED"] == ["accelerator"]
    assert {row["section"] for row in rows} == {"device"}


def test_one_kernel_of_each_kind_equals_its_reference(tmp_path):
    made = families(tiny=True, interpret=True)
    for name in ("products int8", "attention 27B", "delta rule 27B", "experts bf16"):
        with ThreadPoolExecutor(1) as pool:
            compiled = compile_in(pool, made[name]()[0], times=2)
        rows = list(measure("kernels", compiled, settings_of(tmp_path).limits))
        assert [row.status for row in rows] == ["ok"] * len(compiled.kernel.forms), (name, rows)
        assert all(row.value or row.name.endswith("Pallas") for row in rows), name


def test_a_kernel_that_is_wrong_or_cannot_be_traced_fails_alone(tmp_path):
    kernel = families(tiny=True, interpret=True)["products bf16"]()[0]
    right = kernel.forms[XLA]

    def off(inputs, held, index):
        (out, *rest), held = right(inputs, held, index)
        return (out * 1.5, *rest), held

    def broken(inputs, held, index):
        raise TypeError("no such shape")

    broken_kernel = replace(kernel, forms={"Pallas": broken, XLA: off}, untimed=("Pallas", XLA))
    with ThreadPoolExecutor(1) as pool:
        compiled = compile_in(pool, broken_kernel, times=2)
    wrong, untraced = measure("kernels", compiled, None)
    assert wrong.status == untraced.status == "FAILED"
    assert wrong.error == pytest.approx(0.5, rel=0.2)
    assert untraced.note == "TypeError: no such shape"


def test_what_is_not_compiled_in_time_is_skipped(tmp_path):
    make = families(tiny=True, interpret=True)["products bf16"]
    rows = list(kernels._run(settings_of(tmp_path, seconds=0.0), make))
    assert [row.name for row in rows] == [kernel.name for kernel in make()]
    assert {row.status for row in rows} == {"skipped"}


@pytest.mark.parametrize("name", [sections.DENSE, sections.DEMO, sections.SERVE])
def test_a_section_rehearsed(name, tmp_path):
    if name == sections.DEMO:
        try:
            demo_model()
        except ConfigError:
            pytest.skip("SmolLM2 is not installed")
    settings = settings_of(tmp_path, name)
    run_steps(settings, sections.SECTIONS[name].steps(settings), Journal(tmp_path / "j"))
    outcome = read(tmp_path / "j")
    assert outcome.is_done
    assert outcome.rows
    assert failures(outcome.rows) == []
