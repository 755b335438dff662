"""What the members of a request do to the prompt and to the sampler."""

from tests.server.responses import NAMESPACE, PING, RESPONSES, create
from tests.server.scripted import engine_for, hybrid, prompt_text


def test_efforts_reach_the_template(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    prompts = set()
    for effort in ("none", "low", "medium", "xhigh"):
        response = create(server, reasoning={"effort": effort}, max_output_tokens=1)
        assert response["reasoning"] == {"effort": effort, "summary": None}
        prompts.add(prompt_text(engine))
    assert len(prompts) == 4


def test_sampling_members_reach_the_engine(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    response = create(server, temperature=0.25, top_p=0.5, max_output_tokens=1)
    assert (response["temperature"], response["top_p"]) == (0.25, 0.5)
    assert (engine.requests[-1].sampling.temperature, engine.requests[-1].sampling.top_p) == (0.25, 0.5)


def test_tool_schemas_reach_the_prompt_as_they_came(start):
    engine = engine_for("x")
    raw = (
        b'{"model": "fake-model", "input": "hi", "max_output_tokens": 1, "tools": [{"type": "function",'
        b' "name": "look", "parameters": {"type": "object", "properties": {"z": {"minimum": 1.50},'
        b' "a": {"maximum": 1e2}}}, "description": "Look.", "strict": false}]}'
    )
    answer = start(engine, hybrid()).http.post(RESPONSES, content=raw)
    assert answer.status_code == 200
    assert '"z": {"minimum": 1.50}, "a": {"maximum": 1e2}' in prompt_text(engine)
    assert b'"minimum":1.50' in answer.content


def test_namespace_members_have_their_own_names_in_the_prompt(start):
    engine = engine_for("x")
    create(start(engine, hybrid()), tools=[PING, NAMESPACE], max_output_tokens=1)
    prompt = prompt_text(engine)
    assert '"name": "ping"' in prompt
    assert '"name": "mcp__weather.ping"' in prompt
    assert "Weather service" in prompt


def test_tools_that_nobody_runs_are_not_shown_to_the_model(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    create(server, tools=[{"type": "web_search"}], max_output_tokens=1)
    create(server, max_output_tokens=1)
    assert prompt_text(engine, -1) == prompt_text(engine, -2)


def test_cache_hints_do_not_change_the_prompt(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    marked = {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}}
    create(server, input=[{"role": "user", "content": [marked]}], max_output_tokens=1)
    create(server, input="hi", prompt_cache_key="k", max_output_tokens=1)
    assert prompt_text(engine, -1) == prompt_text(engine, -2)
    kinds = [frontier.kind for frontier in engine.requests[0].prompt.frontiers]
    assert "client_marker" in kinds
