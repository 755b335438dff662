""".ci/make-venv: which Python it takes, and what it says when it cannot work."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "make-venv"


def stand_in(folder, name, *, fits=True, works=()):
    """A ``python`` that runs only the modules in ``works``, each by making the folder it is given."""
    python = folder / name
    cases = "".join(
        f'    "-m {module}"*) for last; do :; done; mkdir -p "$last"; exit 0;;\n' for module in works
    )
    python.write_text(
        f'#!/bin/sh\ncase "$*" in\n    "-c "*) exit {0 if fits else 1};;\n{cases}esac\nexit 1\n'
    )
    python.chmod(0o755)
    return python


def run(tmp_path, *arguments):
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    return subprocess.run(
        [SCRIPT, tmp_path / "venv", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_the_first_python_that_fits_is_taken(tmp_path):
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        stand_in(tmp_path, name, fits=name == "python3.12", works=["venv"])
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "venv").is_dir()


def test_virtualenv_stands_in_for_a_missing_venv(tmp_path):
    python = stand_in(tmp_path, "python3", works=["virtualenv"])
    assert run(tmp_path, python).returncode == 0
    assert (tmp_path / "venv").is_dir()


def test_neither_venv_nor_pip_says_what_to_install(tmp_path):
    done = run(tmp_path, stand_in(tmp_path, "python3"))
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


def test_an_old_python_is_refused(tmp_path):
    done = run(tmp_path, stand_in(tmp_path, "python3", fits=False, works=["venv"]))
    assert done.returncode == 1
    assert "no Python 3.11 to 3.13 found" in done.stderr
