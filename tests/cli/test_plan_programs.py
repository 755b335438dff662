"""The rows that ``plan --compile`` prints, of reports made by hand."""

import argparse
from dataclasses import replace

import pytest

from ninfer_jax.cli import plan_programs
from ninfer_jax.engine.aot import Move, ProgramReport
from ninfer_jax.engine.ledger import Ledger

GIB = 1 << 30
LEDGER = Ledger(
    weights={"int8": 20 * GIB},
    kv_pools={"bfloat16": 3 * GIB},
    state=GIB,
    workspace=0,
    temporaries=GIB,
    runtime=GIB,
    kv_capacity=64,
    page_bytes=GIB,
    num_images=1,
)
DECODE = ProgramReport(
    name="decode",
    size=1,
    arguments=24 * GIB,
    aliased=4 * GIB,
    outputs=4 * GIB,
    temporaries=GIB,
    kernels=1311,
    lower_seconds=1.25,
    compile_seconds=23.6,
    big_moves=(),
)


def test_a_row_stands_under_its_heading():
    (row,) = plan_programs.program_lines(DECODE)
    assert " ".join(row.split()) == "decode 1 24.0 GiB 4.0 GiB 1.0 GiB 1,311 0 1.2 s 23.6 s"
    assert len(row) == len(plan_programs.heading())


def test_a_large_move_is_shown_whole():
    copy = Move("copy", "bf16", (128, 64, 4, 256))
    row, move = plan_programs.program_lines(replace(DECODE, big_moves=(copy,)))
    assert " 1 " in row
    assert move.strip() == "copy bf16[128, 64, 4, 256]"


def test_the_end_compares_the_peak_with_the_ledger():
    small = replace(DECODE, name="copy_image", size=0, temporaries=0)
    lines = "\n".join(plan_programs.closing_lines(LEDGER, [DECODE, small]))
    assert "pools and state of 4.0 GiB: in place in every program" in lines
    assert "predicted 26.0 GiB, compiled 26.0 GiB (+0.0%)" in lines
    assert "not in place in copy_image\n" in "\n".join(
        plan_programs.closing_lines(LEDGER, [DECODE, replace(small, aliased=3 * GIB)])
    )


def test_programs_without_weights_say_nothing_of_the_peak():
    (line,) = plan_programs.closing_lines(LEDGER, [replace(DECODE, name="bind_lane")])
    assert "in place" in line


def test_programs_are_chosen_by_name():
    assert plan_programs.program_names("decode, copy_image") == ("decode", "copy_image")
    with pytest.raises(argparse.ArgumentTypeError, match="'encode' is not one of prefill, decode"):
        plan_programs.program_names("encode")
