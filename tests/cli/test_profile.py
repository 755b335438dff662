"""The profile command: a real trace of a fake engine's work, and a server's answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ninfer_jax.cli import main
from tests.cli.test_readme import CONFIG


def test_a_local_capture_is_a_folder_and_a_table(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model, out = tmp_path / "tiny.ninfer", tmp_path / "out"
    assert main.main(["convert", "--random", str(tmp_path / "config.json"), str(model)]) == 0
    capsys.readouterr()
    line = ["profile", str(model), "--out", str(out), "--rows", "2", "--rounds", "5", "--context", "20"]
    assert main.main(line) == 0
    printed = capsys.readouterr()
    assert printed.out.strip().startswith(str(out))
    assert list(out.rglob("*.xplane.pb"))
    assert "device time of a decode round, B=2" in printed.err
    assert "attention" in printed.err
    assert "paged_attention" in printed.err or "linear" in printed.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--rows", "9"], "--rows must be from 1 to 8, not 9"),
        (["--seconds", "0"], "--seconds must be from 0.1 to 60, not 0"),
        (["--rounds", "0"], "--rounds must be from 1"),
    ],
)
def test_ranges(flags, said, capsys):
    assert main.main(["profile", *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        answers: dict

        def do_POST(self):
            key = self.headers.get("authorization", "")
            status, body = self.answers[key]
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    Handler.answers = {
        "Bearer right": (200, b'{"folder": "/srv/profile/1"}'),
        "Bearer wrong": (401, b'{"error": {"message": "no such key"}}'),
        "": (404, b"{}"),
    }
    with HTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_a_remote_capture_prints_the_servers_folder(server, capsys):
    line = ["profile", "--url", f"{server}/v1", "--seconds", "0.1"]
    assert main.main([*line, "--api-key", "right"]) == 0
    assert capsys.readouterr().out == "/srv/profile/1\n"
    assert main.main([*line, "--api-key", "wrong"]) == 1
    assert "answered 401: no such key" in capsys.readouterr().err
    assert main.main(line) == 1
    assert "--profile-dir" in capsys.readouterr().err
