"""The command line's frame: finding a command, refusing a wrong one, and exit codes."""

import subprocess
import sys
import types

import pytest

from ninfer_jax import __version__
from ninfer_jax.cli import environment, main
from ninfer_jax.engine.gpu_targets import POOL_FRACTION
from ninfer_jax.errors import ConfigError, CorruptModelError, NinferError


def fake_command(outcome):
    def run(args):
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def add_arguments(parser):
        parser.add_argument("--max-context", type=int, default=1)

    return types.SimpleNamespace(HELP="help", add_arguments=add_arguments, run=run)


@pytest.fixture
def install(monkeypatch):
    """Makes every command the given fake, and keeps the process environment as it is."""
    monkeypatch.setattr(environment, "prepare", lambda: None)
    return lambda outcome: monkeypatch.setattr(main, "load", lambda command: fake_command(outcome))


def run_line(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ninfer_jax", *arguments], capture_output=True, text=True, check=False
    )


def test_version_and_help_do_not_import_jax():
    code = "import sys; from ninfer_jax.cli import main; main.main([sys.argv[1]])"
    script = (
        f"import atexit, sys; atexit.register(lambda: print('jax' in sys.modules, file=sys.stderr)); {code}"
    )
    for flag, expected in (("--version", f"ninfer-jax {__version__}"), ("--help", "serve")):
        done = subprocess.run(
            [sys.executable, "-c", script, flag], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.strip()) == (0, "False")
        assert expected in done.stdout


def test_python_m_runs_the_same_command():
    assert run_line("--version").stdout.strip() == f"ninfer-jax {__version__}"


def test_no_command_prints_help_and_fails():
    done = run_line()
    assert done.returncode == 2
    assert "commands:" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["srve"], "unknown command 'srve'; did you mean serve?"),
        (["xyzzy"], "unknown command 'xyzzy'"),
        (["--verson"], "unknown flag --verson; did you mean --version?"),
        (["serve", "--max-contxt", "9"], "unknown flag --max-contxt; did you mean --max-context?"),
        (["serve", "--max-contxt=9"], "unknown flag --max-contxt; did you mean --max-context?"),
        (["serve", "--max-con", "9"], "unknown flag --max-con"),
        (["serve", "--max-context", "many"], "argument --max-context: invalid int value: 'many'"),
        (["serve", "extra"], "unexpected argument 'extra'"),
    ],
)
def test_wrong_line_exits_2_with_one_line(install, capsys, line, said):
    install(0)
    with pytest.raises(SystemExit) as stopped:
        main.main(line)
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (0, 0),
        (7, 7),
        (NinferError("broken"), 1),
        (CorruptModelError("model.gguf: truncated"), 1),
        (ConfigError("must be 1..8", field="--max-concurrency"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(install, capsys, outcome, code):
    install(outcome)
    assert main.main(["inspect"]) == code
    printed = capsys.readouterr().err
    if isinstance(outcome, NinferError):
        assert printed.startswith("ninfer-jax inspect: error: ")
        assert printed.count("\n") == 1
        assert outcome.message in printed
        assert (outcome.field or "") in printed


def test_an_unforeseen_error_keeps_its_traceback(install):
    install(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main.main(["inspect"])


def test_a_closed_pipe_is_quiet():
    script = (
        "import sys, types; from ninfer_jax.cli import main\n"
        "run = lambda args: [print('x' * 99) for _ in range(9999)] and 0\n"
        "main.load = lambda c: types.SimpleNamespace(HELP='', add_arguments=lambda p: None, run=run)\n"
        "sys.exit(main.main(['inspect']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_environment_keeps_what_the_user_set(tmp_path):
    values = {"JAX_COMPILATION_CACHE_DIR": "/mine", "XDG_CACHE_HOME": str(tmp_path)}
    environment.prepare(values)
    assert values["JAX_COMPILATION_CACHE_DIR"] == "/mine"
    fresh = {"XDG_CACHE_HOME": str(tmp_path)}
    environment.prepare(fresh)
    assert fresh["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "ninfer-jax" / "xla")
    assert fresh["XLA_CLIENT_MEM_FRACTION"] == str(POOL_FRACTION)


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_the_share_of_a_gpu_stays_under_either_name(name):
    """jax refuses to start when both names are set."""
    values = {name: "0.5"}
    environment.prepare(values)
    assert {key: value for key, value in values.items() if "MEM_FRACTION" in key} == {name: "0.5"}


@pytest.mark.parametrize("command", main.COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main([command.name, "--help"])
    assert stopped.value.code == 0
    assert f"ninfer-jax {command.name}" in capsys.readouterr().out
