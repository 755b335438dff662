"""What this server cannot promise is refused by name; ``--lenient-api`` drops what is only a hint."""

import pytest

from tests.server.scripted import engine_for, hybrid, what_ran
from tests.server.test_messages_basics import PING_TOOL, message, refused, user


@pytest.fixture(scope="module")
def script():
    return "</think>\n\nok"


@pytest.mark.parametrize(
    ("members", "field", "said"),
    [
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display", "hidden thinking"),
        ({"container": "c1"}, "container", "containers"),
        ({"mcp_servers": [{"type": "url", "url": "http://x.example"}]}, "mcp_servers", "MCP"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format", "constrained"),
        ({"output_format": {"type": "json_schema"}}, "output_format", "constrained"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type", "web_search"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type", "nobody here runs"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "tools[0].type", "nobody here runs"),
        ({"tools": [{**PING_TOOL, "strict": True}]}, "tools[0].strict", "not constrained"),
        ({"tools": [{**PING_TOOL, "defer_loading": True}]}, "tools[0].defer_loading", "tool search"),
        (
            {"tools": [{**PING_TOOL, "allowed_callers": ["code_execution_20250825"]}]},
            "tools[0].allowed_callers",
            "the model itself",
        ),
        ({"tools": [PING_TOOL], "tool_choice": {"type": "any"}}, "tool_choice.type", "enforced"),
        (
            {"tools": [PING_TOOL], "tool_choice": {"type": "tool", "name": "ping"}},
            "tool_choice.type",
            "enforced",
        ),
        (
            {"tools": [PING_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "tool_choice.disable_parallel_tool_use",
            "single call",
        ),
        *[
            ({"messages": [user([{"type": kind}])]}, "messages[0].content[0].type", said)
            for kind, said in [
                ("document", "documents"),
                ("search_result", "search results"),
                ("container_upload", "containers"),
                ("web_search_tool_result", "server tools"),
            ]
        ],
        (
            {"messages": [user(), {"role": "assistant", "content": [{"type": "server_tool_use"}]}, user()]},
            "messages[1].content[0].type",
            "server tools",
        ),
        (
            {"messages": [user(), {"role": "assistant", "content": [{"type": "redacted_thinking"}]}, user()]},
            "messages[1].content[0].type",
            "encrypted thinking",
        ),
    ],
    ids=str,
)
def test_messages_missing_guarantees_are_named(server, members, field, said):
    error = refused(server, **members)
    assert error["code"] == "unsupported_feature"
    assert error["message"].startswith(field)
    assert said in error["message"]


@pytest.mark.parametrize(
    ("members", "left", "logged"),
    [
        (
            {"tools": [{"type": "web_search_20250305", "name": "s"}, PING_TOOL]},
            {"tools": [PING_TOOL]},
            "tools[0].type",
        ),
        ({"tools": [{**PING_TOOL, "strict": True}]}, {"tools": [PING_TOOL]}, "tools[0].strict"),
        (
            {"tools": [PING_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"tools": [PING_TOOL]},
            "tool_choice.disable_parallel_tool_use",
        ),
        ({"output_config": {"effort": "max"}}, {}, "output_config.effort"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_messages_lenient_api_drops_hints(start, caplog, members, left, logged):
    caplog.set_level("INFO", "ninfer_jax")
    server = start(engine_for("</think>\n\nok"), hybrid(), lenient_api=True)
    message(server, **members)
    ran = what_ran(server)
    assert [r.getMessage().partition(": ")[2] for r in caplog.records] == [f"ignored {logged}"]
    message(server, **left)
    assert what_ran(server) == ran
    refused(server, tools=[PING_TOOL], tool_choice={"type": "any"})
