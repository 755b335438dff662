"""The README's commands, as pasted, against a server with a tiny model."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer_jax.cli.bench_server import ServerProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    command = [sys.executable, "-m", "ninfer_jax", "convert", "--random", folder / "config.json"]
    subprocess.run([*command, folder / "tiny.ninfer"], check=True, cwd=ROOT, capture_output=True)
    return folder / "tiny.ninfer"


@pytest.fixture(scope="module")
def server(model):
    flags = [str(model), "--max-context", "256", "--prefill-chunk", "64", "--temperature", "0"]
    with ServerProcess(flags) as running:
        yield running


def test_curl_gets_an_answer(server):
    (command,) = [block for block in blocks("sh") if "curl" in block]
    if not shutil.which("curl"):
        pytest.skip("no curl")
    command = command.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] > 0


def test_the_openai_sdk_streams_an_answer(server):
    (program,) = [block for block in blocks("python") if "OpenAI(" in block]
    program = program.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 1  # a random model may well say nothing but line ends


def test_the_library_snippet_runs(server, model):
    (program,) = [block for block in blocks("python") if "InferenceEngine" in block]
    assert "demo_model()" in program
    program = program.replace("demo_model()", repr(str(model)))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 1  # a random model may well say nothing but line ends


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_command_is_listed():
    from ninfer_jax.cli.main import COMMANDS

    listed = re.findall(r"^\| `ninfer-jax (\w+)", README, re.MULTILINE)
    assert listed == [command.name for command in COMMANDS]
