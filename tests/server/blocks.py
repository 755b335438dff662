"""The blocks and turns of Anthropic Messages, and the prompts that they become."""

from tests.server.scripted import prompt_text
from tests.server.test_messages_basics import DISABLED, message


def text(words, **members):
    return {"type": "text", "text": words, **members}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def thought(words, **members):
    return {"type": "thinking", "thinking": words, **members}


def tool_use(call_id="t1", name="get_weather", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id="t1", content="20C", **members):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **members}


def prompts_of(server, engine):
    """``prompt(messages, ...)``: the text that the template made of a request without thinking."""

    def prompt(messages, **members):
        message(server, messages=messages, **{"thinking": DISABLED, "max_tokens": 1, **members})
        return prompt_text(engine)

    return prompt
