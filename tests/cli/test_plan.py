"""``ninfer-jax plan``: what it prints, as words and as JSON, and what it refuses."""

import json
import re

import pytest

from ninfer_jax.cli import main as cli
from ninfer_jax.cli.plan import SIZING_FLAGS
from ninfer_jax.engine.device_memory import HEADROOM_BYTES
from ninfer_jax.server.flag import Flag
from ninfer_jax.server.flag_table import FLAGS
from tests.artifact import checkpoints


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = cli.main(["plan", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_registered_identity_takes_the_widest_weights_that_fit(run):
    code, out, _ = run("Qwen3.8-27B", "--gpu", "rtx5090")
    assert code == 0
    assert "qwen3.8-27b on rtx5090 (31.3 GiB, 1,792 GB/s): int8 weights" in out
    assert "largest --kv-capacity that fits" in out
    assert re.search(r"runtime +1\.6 GiB\n", out)  # all that jax's allocator leaves
    assert "bf16 weights" in run("qwen3.8-27b", "--gpu", "h200")[1]


def test_what_does_not_fit_is_said_and_the_exit_code_is_one(run):
    code, out, _ = run("qwen3.8-27b", "--gpu", "rtx4090")
    assert code == 1
    assert "does not fit" in out
    assert "missing" in out
    assert "would fit with" not in out


def test_what_would_do_is_said_where_something_would(run):
    code, out, _ = run(
        "qwen3.8-27b", "--gpu", "rtx5090", "--max-context", "131072", "--kv-capacity", "262144"
    )
    assert code == 1
    assert re.search(r"would fit with --kv-capacity \d+\n|would fit with --max-context \d+ with", out)


def test_json_with_auto_capacity(run):
    code, out, _ = run(
        "qwen3.6-35b-a3b", "--gpu", "h200", "--json", "--kv-capacity", "auto", "--max-concurrency", "4"
    )
    facts = json.loads(out)
    assert code == 0
    memory = facts["memory"]
    assert memory["kv_capacity"] > 1_000_000
    left = facts["gpu"]["memory"] - memory["total"]
    assert HEADROOM_BYTES <= left < HEADROOM_BYTES + memory["page_bytes"]
    assert {row["batch"] for row in facts["decode"]} == {1, 4}


def test_a_folder_is_planned_by_its_own_name(run, tmp_path):
    config = checkpoints.config()
    folder = checkpoints.write_folder(tmp_path / "tiny", config, checkpoints.tensors(config))
    code, out, _ = run(str(folder), "--gpu", "a100", "--max-context", "128", "--layers", "1")
    assert code == 0
    assert out.startswith("tiny, first 1 layers on a100")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nothing-here", "--gpu", "h200"), "qwen3.6-27b"),
        (("qwen3.8-27b", "--gpu", "voodoo2"), "rtx5090"),
        (("qwen3.8-27b", "--gpu", "h200", "--layers", "65"), "64 layers"),
        (("qwen3.8-27b", "--gpu", "h200", "--kv-capacity", "100"), "--max-context"),
    ],
)
def test_refusals_name_what_would_do(run, arguments, word):
    code, _, err = run(*arguments)
    assert code == 2
    assert word in err


def test_a_cut_plans_the_first_layers(run):
    code, out, _ = run("qwen3.8-27b", "--gpu", "h200", "--layers", "8")
    assert code == 0
    assert "first 8 layers" in out


def sample(flag: Flag) -> str:
    """A value that the flag takes and that is not its default."""
    for text in ("0", "1", "info"):
        try:
            flag.parse(text)
        except ValueError:
            continue
        return f"--{flag.name}" if flag.is_switch else f"--{flag.name}={text}"
    raise AssertionError(flag)


def test_help_lists_the_flags_that_a_plan_depends_on(run, capsys):
    with pytest.raises(SystemExit):
        cli.main(["plan", "--help"])
    listed = set(re.findall(r"^  --([a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert listed & {flag.name for flag in FLAGS} == SIZING_FLAGS


def test_the_flags_of_serve_that_help_leaves_out_change_nothing(run):
    command = ("qwen3.6-27b", "--gpu", "h200", "--json")
    others = [sample(flag) for flag in FLAGS if flag.name not in SIZING_FLAGS]
    assert run(*command, *others) == run(*command)


@pytest.mark.parametrize(
    "flag",
    [
        "--weights=int8",
        "--max-context=1024",
        "--kv-capacity=auto",
        "--max-concurrency=2",
        "--prefill-chunk=4096",
    ],
)
def test_the_flags_that_help_lists_change_the_plan(run, flag):
    command = ("qwen3.6-27b", "--gpu", "h200", "--json")
    assert run(*command, flag)[1] != run(*command)[1]
