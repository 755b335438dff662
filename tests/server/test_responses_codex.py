"""Codex CLI (`npm install -g @openai/codex`) runs a turn of two steps against a scripted engine.

``CODEX_BINARY`` names a binary that is not on the path.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.responses import call_text
from tests.server.scripted import TEMPLATES, engine_for
from tests.text.fakes import frontend

pytestmark = pytest.mark.client

MAX_CONTEXT = 1 << 20
CONFIG = """
model = "fake-model"
model_provider = "loopback"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.loopback]
name = "loopback"
base_url = "{url}/v1"
env_key = "LOOPBACK_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


@pytest.fixture(scope="session")
def codex() -> str:
    binary = os.environ.get("CODEX_BINARY") or shutil.which("codex")
    if binary is None:
        pytest.skip("there is no codex on the path, and CODEX_BINARY is not set")
    return binary


def test_codex_reads_a_file_and_answers(codex, start, tmp_path):
    call = call_text("exec_command", cmd="cat note.txt")
    engine = engine_for(
        f"The note will tell.</think>\n\nI will look.\n\n{call}",
        "</think>\n\nIt is a tulip.",
        max_context=MAX_CONTEXT,
        prefill_chunk=MAX_CONTEXT,
    )
    template = (TEMPLATES / "hybrid_effort.jinja").read_text()
    server = start(engine, frontend(template, max_context=MAX_CONTEXT))
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(CONFIG.format(url=server.url))
    (work / "note.txt").write_text("the flower is a tulip\n")
    done = run_codex(codex, home, work, "What flower is in note.txt?")
    assert done.returncode == 0, done.stderr
    assert "It is a tulip." in done.stdout
    assert [len(request.prompt.token_ids) > 1000 for request in engine.requests] == [True, True]
    prompt = bytes(token for token in engine.requests[1].prompt.token_ids if token < 256).decode()
    replayed = [
        "What flower is in note.txt?",
        "The note will tell.",
        "I will look.",
        "cat note.txt",
        "a tulip",
    ]
    places = [prompt.rindex(text) for text in replayed]
    assert places == sorted(places), "the second step shows the first one's Items and the file"


def run_codex(binary: str, home: Path, work: Path, question: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "LOOPBACK_KEY": "x"}
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return subprocess.run(
        [binary, "exec", *flags, question],
        cwd=work,
        env={**environ, "NO_PROXY": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
