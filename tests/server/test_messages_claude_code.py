"""Claude Code (`npm install -g @anthropic-ai/claude-code`) runs two turns against a scripted engine.

``CLAUDE_BINARY`` names a binary that is not on the path.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.scripted import TEMPLATES, engine_for
from tests.text.fakes import frontend

pytestmark = pytest.mark.client

MAX_CONTEXT = 1 << 20
"""Its own prompt is some 80,000 bytes long."""


@pytest.fixture(scope="session")
def claude() -> str:
    binary = os.environ.get("CLAUDE_BINARY") or shutil.which("claude")
    if binary is None:
        pytest.skip("there is no claude on the path, and CLAUDE_BINARY is not set")
    return binary


def run(binary: str, url: str, folder: Path, *arguments: str, **environ: str) -> str:
    """What one ``claude -p`` prints; HOME is an empty folder, and nothing but the server is asked."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "local",
        "ANTHROPIC_MODEL": "local-model",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "NO_PROXY": "127.0.0.1",
        **environ,
    }
    done = subprocess.run(
        [binary, "-p", *arguments, "--allowedTools", "Read"],
        cwd=folder,
        env=own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_messages_claude_code_reads_a_file_and_continues(claude, start, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("the flower is a tulip\n")
    call = (
        "<tool_call>\n<function=Read>\n"
        f"<parameter=file_path>\n{note}\n</parameter>\n</function>\n</tool_call>"
    )
    written = [
        f"The note will tell.\n</think>\n\nI will look.\n\n{call}",
        "It is clear.\n</think>\n\nIt is a tulip.",
        "Tulips are.\n</think>\n\nRed, I think.",
    ]
    engine = engine_for(*written, max_context=MAX_CONTEXT, prefill_chunk=MAX_CONTEXT)
    template = (TEMPLATES / "hybrid_effort.jinja").read_text()
    server = start(engine, frontend(template, max_context=MAX_CONTEXT), preserve_thinking=True)
    auto = {"CLAUDE_CODE_EFFORT_LEVEL": "auto"}
    said = run(claude, server.url, tmp_path, "What flower is in note.txt?", **auto)
    assert said.strip() == "It is a tulip."
    said = run(claude, server.url, tmp_path, "--continue", "What colour is it?", **auto)
    assert said.strip() == "Red, I think."
    assert len(engine.requests) == 3
    decode = frontend(template).tokenizer.token_bytes
    prompts = [b"".join(map(decode, request.prompt.token_ids)).decode() for request in engine.requests]
    assert "the flower is a tulip" in prompts[1]
    assert "x-anthropic-billing-header" not in prompts[0]
    for before, answer, after in zip(prompts, written, prompts[1:], strict=False):
        assert after.startswith(before + answer), "the next request repeats the prefix byte for byte"


def test_messages_claude_code_as_it_comes_needs_the_lenient_api(claude, start, tmp_path):
    """It asks every unknown model for effort ``high``, which templates of this family do not have."""
    engine = engine_for("</think>\n\nHello.", max_context=MAX_CONTEXT, prefill_chunk=MAX_CONTEXT)
    template = (TEMPLATES / "hybrid_effort.jinja").read_text()
    server = start(engine, frontend(template, max_context=MAX_CONTEXT), lenient_api=True)
    assert run(claude, server.url, tmp_path, "Say hello.").strip() == "Hello."
