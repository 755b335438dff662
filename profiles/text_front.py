"""CPU time of the text side: a token to its deltas, and a resent conversation to its prompt.

    PYTHONPATH=. python profiles/text_front.py [MODEL] [--template FILE] [--repeats 9]

Only MODEL's tokenizer and template are read (default: the demo model). The conversation has 40 tools and
about 120,000 tokens; each resent prompt is the one before with two more turns, as an agent sends it.
Process time, best of the repeats. Prints one JSON line.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import open_checkpoint
from ninfer_jax.text.conversation import Conversation, TextPart, Tool, Turn
from ninfer_jax.text.frontend import Frontend

SENTENCE = "The quick brown fox jumps over the lazy dog while seven wizards watch from a hill. "
NUM_TOOLS = 40
NUM_TURNS = 120
TURN_SENTENCES = 55


def tools() -> tuple[Tool, ...]:
    properties = {name: {"type": "string", "description": SENTENCE} for name in ("path", "text", "mode")}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    names = [f"tool_{index}" for index in range(NUM_TOOLS)]
    return tuple(
        Tool(name, {"type": "function", "function": {"name": name, "parameters": schema}}) for name in names
    )


def conversation(num_turns: int) -> Conversation:
    declared = tools()
    turns = [
        Turn("user" if index % 2 == 0 else "assistant", (TextPart(f"{index}: {SENTENCE * TURN_SENTENCES}"),))
        for index in range(num_turns)
    ]
    return Conversation(turns, declared, frozenset(tool.name for tool in declared))


def best(function: Callable[[], object], repeats: int) -> float:
    """Seconds of process time."""
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        function()
        seconds.append(time.process_time() - started)
    return min(seconds)


def token_seconds(front: Frontend, request: Conversation, repeats: int, stop: tuple[str, ...]) -> float:
    """Process time of one token of plain text through ``preview`` and ``commit``, one at a time."""
    prepared = front.prepare(request)
    tokens = front.tokenizer.encode(SENTENCE * 200)

    def decode() -> None:
        session = front.session(prepared, stop=stop)
        for token in tokens:
            session.preview((token,))
            session.commit((token,))

    return best(decode, repeats) / len(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--template", type=Path, help="a chat template instead of the model's own")
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    resources = dict(open_checkpoint(args.model or demo_model()).resources)
    if args.template:
        resources["chat_template.jinja"] = args.template.read_bytes()
    front = Frontend.from_resources(resources, max_context=1 << 20)
    hello = Conversation([Turn("user", (TextPart("Hello."),))])
    with_tools = conversation(1)
    started = time.process_time()
    first = front.prepare(conversation(NUM_TURNS - 1))
    cold = time.process_time() - started
    resent = iter([conversation(NUM_TURNS + 1 + 2 * index) for index in range(args.repeats)])
    figures = {
        "token_us": 1e6 * token_seconds(front, hello, args.repeats, ()),
        "token_with_tools_us": 1e6 * token_seconds(front, with_tools, args.repeats, ()),
        "token_with_stop_us": 1e6 * token_seconds(front, hello, args.repeats, ("STOP",)),
        "prompt_tokens": len(first.prompt.token_ids),
        "first_prompt_ms": 1e3 * cold,
        "resent_prompt_ms": 1e3 * best(lambda: front.prepare(next(resent)), args.repeats),
    }
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
