"""``ninfer-jax serve`` on this device, and a chat by HTTP. This process leaves the device to the server."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.cli.bench_http import HttpTarget
from ninfer_jax.cli.bench_measures import first_token_seconds
from ninfer_jax.cli.bench_server import ServerProcess
from ninfer_jax.cli.bench_target import Job
from ninfer_jax.errors import ConfigError
from profiles.device.report import Row
from profiles.device.steps import COMPILE_CACHE, Rows, Settings, Step

FLAGS = ("--max-context=2048", "--kv-capacity=16384", "--max-concurrency=8", "--prefill-chunk=512")
TINY_FLAGS = ("--max-context=2048", "--kv-capacity=2048", "--prefill-chunk=64")


def steps(settings: Settings) -> Sequence[Step]:
    return [Step("serve", partial(_serve, settings))]


def _serve(settings: Settings) -> Rows:
    model, what = _model(settings)
    flags = TINY_FLAGS if settings.rehearse else FLAGS
    with ServerProcess([str(model), *flags], compile_cache=settings.folder / COMPILE_CACHE) as server:
        yield Row(settings.section, "ready", "measured", server.startup_seconds, "s", note=what)
        prompt, output = (64, 16) if settings.rehearse else (128, 64)
        target = HttpTarget("serve", server.url)  # asks the list of models, and two short questions
        trace = target.run([Job(prompt, output, seed=1)])[0]
        name = f"time to first token, chat of {trace.prompt_tokens} tokens"
        yield Row(settings.section, name, "ok", 1e3 * first_token_seconds(trace), "ms")
        written, seconds = trace.counts[-1], trace.times[-1] - trace.times[0]
        if written > 1 and seconds > 0:
            rate = (written - trace.counts[0]) / seconds
            yield Row(settings.section, f"stream of {written} tokens", "measured", rate, "tok/s")


def _model(settings: Settings) -> tuple[Path, str]:
    """The demo model where it is installed, else a tiny random one."""
    if not settings.rehearse:
        try:
            return demo_model(), "SmolLM2; where its own section ran, the programs are in the cache"
        except ConfigError as error:
            return _random_model(settings.folder), f"a tiny random model: {error}"
    return _random_model(settings.folder), "a tiny random model"


def _random_model(folder: Path) -> Path:
    """Converted in a process that leaves the device alone."""
    from profiles.device.sizes import DENSE, hf_config

    source, target = folder / "tiny.json", folder / "tiny.ninfer"
    source.write_text(json.dumps(hf_config(DENSE, 4, tiny=True)))
    command = [sys.executable, "-m", "ninfer_jax", "convert", "--random", str(source), str(target)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"convert: {done.stderr.strip().splitlines()[-1:]}")
    return target
