"""A fake engine that is observed, and everything that the observers made of it."""

import json
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ninfer_jax.config import EngineConfig
from ninfer_jax.errors import ContextLengthExceededError
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.request_log import RequestLog
from ninfer_jax.observe.requests import Rejection, RequestShape
from ninfer_jax.observe.server_start import server_start
from ninfer_jax.types import OutputSummary
from tests.fakes import FakeSession, Recorder, fake_engine, fake_info, fake_request

CONFIG = EngineConfig(
    max_context=512, kv_capacity=1024, max_concurrency=3, max_pending_requests=16, prefill_chunk=64
)
SHAPE = RequestShape("openai_chat", stream=True, num_messages=2, num_tools=1)


class ToolSession(FakeSession):
    def summary(self):
        diagnostics = {"tool_marker_seen": True, "schema_mismatches": 2}
        return OutputSummary(3, "END", 1, "undeclared_tool", diagnostics)


class Run:
    """A monitored fake engine and what it produced."""

    def __init__(self, folder, path=None):
        self.path = path or folder / "log.jsonl"
        self.monitor = ServeMonitor(request_log=RequestLog(self.path), interval=0.02)
        self.engine = fake_engine(CONFIG, observer=self.monitor)
        members = server_start(
            fake_info(CONFIG),
            artifact=Path("/models/tiny.ninfer"),
            weights="int8",
            options={"port": 8080},
            stats=self.engine.stats(),
            device={"platform": "cpu"},
            argv=["serve", "--api-key", "hunter2", "--port", "8080", "--api-key=hunter2"],
        )
        self.monitor.start(self.engine.stats, "tiny", members)
        self.recorders = {}

    def send(self, name, prompt, output, *, session=None, cancel=False):
        place, recorder = self.engine.reserve(), Recorder()
        request = fake_request(prompt, output, session=session, request_id=name)
        self.monitor.prepared(name, SHAPE, place.deadline - CONFIG.pending_timeout)
        try:
            place.submit(request, recorder)
        except ContextLengthExceededError as error:
            self.monitor.rejected(name, SHAPE, 0.0, Rejection(400, "invalid_request_error", error))
            place.release()
            return None
        if cancel:
            place.cancel()
        self.recorders[name] = (recorder, place)
        return recorder

    def finish(self):
        for recorder, place in self.recorders.values():
            recorder.wait()
            place.release()
        self.stats = self.engine.stats()
        self.page = self.monitor.metrics.text().decode()
        self.engine.shutdown()
        self.monitor.close()
        self.events = [json.loads(line) for line in self.path.read_text().splitlines()]
        return self

    def of(self, event):
        return [record for record in self.events if record["event"] == event]

    def metric(self, name, **labels):
        values = [
            sample.value
            for family in text_string_to_metric_families(self.page)
            for sample in family.samples
            if sample.name == f"ninfer:{name}" and labels.items() <= sample.labels.items()
        ]
        assert values, f"no metric {name} {labels}"
        return sum(values)


class ExplodingSession(FakeSession):
    def preview(self, token_ids):
        raise RuntimeError("the secret text")
