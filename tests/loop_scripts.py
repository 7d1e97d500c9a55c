"""What a model says in a run of each loop that fetches two values and sends three texts, by phase and turn.

A turn is a text, or the calls of a reply: pairs of a tool's name and its arguments.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from plait.core import Call, Reply

Turn: TypeAlias = str | tuple[tuple[str, dict[str, Any]], ...]

LOOPS = ("react", "json", "rewoo", "compiler", "phased", "codeact", "tool_calling")
QUESTION, ANSWER = "Send one, two and three.", "all is sent"
SENT = {"one", "two", "three"}
TRIP = {"city": "Ghent", "days": 2, "stops": ["the castle", "the museum"]}
"""The typed answer of the script "trip"."""


def reply_of(turn: Turn) -> str | Reply:
    """A turn as what a scripted model replies."""
    if isinstance(turn, str):
        return turn
    return Reply("", "calls", calls=tuple(Call(tool, given, f"{tool}-{i}") for i, (tool, given) in enumerate(turn)))


def write_action(tool: str, value: str) -> str:
    return f'Thought: next.\nAction:\n```json\n{{"action": "{tool}", "action_input": "{value}"}}\n```\n'


def _turn(thought: str, tool: str, value: str) -> str:
    return json.dumps({"thought": thought, "tool": tool, "tool_input": value})


def _calls(*made: tuple[str, str]) -> Turn:
    return tuple((tool, {"key" if tool == "fetch" else "text": value}) for tool, value in made)


PLAN = """\
Plan: get a value
#E1 = fetch[a]
Plan: send, beside it
#E2 = send[one]
Plan: send what was fetched, and get another
#E3 = send[two #E1]
#E4 = fetch[b]
Plan: put it into words
#E5 = LLM[say #E4]
Plan: send once more
#E6 = send[three #E5]
"""

NUMBERED = """\
1. fetch("a")
2. send("one")
3. send("two $1")
4. fetch("b")
5. send("three ${4}")
6. join()
"""

ACTIONS = json.dumps(
    [
        {"ACTION": "fetch", "ARGUMENTS": ["a"], "EXPLANATION": "get a value"},
        {"ACTION": "send", "ARGUMENTS": ["one"], "EXPLANATION": "beside it"},
        {"ACTION": "send", "ARGUMENTS": ["two $1"], "EXPLANATION": "what was fetched"},
        {"ACTION": "fetch", "ARGUMENTS": ["b"], "EXPLANATION": "another"},
        {"ACTION": "send", "ARGUMENTS": ["three"], "EXPLANATION": "once more"},
    ]
)

CODE = """\
ACTION 2:
```python
done = []
a = fetch("a")
for text in ["one", f"two {a}"]:
    try:
        done.append(send(text))
    except Exception as why:
        print("not sent:", why)
print(len(done))
```"""

AWAITED = """\
ACTION 3:
```python
try:
    print(await asyncio.gather(fetch("b"), send(f"three {a}")))
except Exception as why:
    print("not sent:", why)
```"""

STOP = 'Done.\nACTION 4:\n```python\nstop("all is sent")\n```'

SCRIPTS: dict[str, dict[str, list[Turn]]] = {
    "react": {
        "act": [
            write_action("fetch", "a"),
            write_action("send", "one"),
            write_action("fetch", "b"),
            write_action("send", "two"),
            write_action("send", "three"),
            "Thought: done.\nFinal Answer: all is sent",
        ]
    },
    "json": {
        "act": [
            _turn("first", "fetch", "a"),
            _turn("then", "send", "one"),
            _turn("again", "fetch", "b"),
            _turn("then", "send", "two"),
            _turn("then", "send", "three"),
            _turn("done", "final_answer", "all is sent"),
        ]
    },
    "rewoo": {"plan": [PLAN], "work": ["it is b"], "solve": ["all is sent"]},
    "compiler": {"plan": [NUMBERED], "join": ["Thought: done.\nFinish: all is sent"]},
    "phased": {"reason": ["Fetch and send."], "react": [ACTIONS], "reply": ["all is sent"]},
    "codeact": {
        "decompose": ["1. Fetch a value\n2. Send it"],
        # The first turn is made by the loop: its reply is that of the other phase.
        "act": ["", "I send.\n" + CODE, "And the rest.\n" + AWAITED, STOP],
    },
    "tool_calling": {
        "act": [
            _calls(("fetch", "a"), ("send", "one")),
            _calls(("send", "two"), ("fetch", "b"), ("send", "three")),
            "all is sent",
        ]
    },
    # Of `crash_script.py`: the tool `delegate` sends the other two texts.
    "children": {
        "act": [
            write_action("fetch", "a"),
            write_action("send", "one"),
            write_action("delegate", "two and three"),
            "Thought: done.\nFinal Answer: all is sent",
        ]
    },
    # Of `trip_agent.py`: the agent, and the one that it asks.
    "trip": {
        "act": [
            (("search", {"query": "Ghent"}), ("ask_agent", {"question": "What is open in Ghent?"})),
            (("book", {"what": "hotel"}), ("book", {"what": "train"})),
            (("final_answer", TRIP),),
        ],
        "research": [(("search", {"query": "museums"}),), "Two museums are open."],
    },
}


def scripts_with(loop: str, names: dict[str, str]) -> dict[str, list[str | Reply]]:
    """The script of a loop with other names of tools and arguments in place of fetch, send, key and text, and other
    values in place of "a" and "b"."""

    def rename(given: Any) -> Any:
        if isinstance(given, str):
            return re.sub(
                r"\b(fetch|send|key|text)\b|(?<=[\[\"])[ab](?=[\]\"])", lambda m: names.get(m[0], m[0]), given
            )
        if isinstance(given, tuple):
            return tuple(map(rename, given))
        return {names.get(key, key): names.get(value, value) for key, value in given.items()}

    return {phase: [reply_of(rename(turn)) for turn in turns] for phase, turns in SCRIPTS[loop].items()}
