"""An endpoint on loopback that answers at once, in a process of its own, with the protocol of each wire.

It speaks just enough HTTP: it reads a request, finds the script by the model's name and the turn by the assistant
messages in it, and gives the reply of that turn, as one JSON body or as a stream, whichever was asked for.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re

from wires import WIRES, event

ACTION = 'Thought: I need the next number.\nAction:\n```json\n{{"action": "add", "action_input": "{n}"}}\n```'
ANSWER = "Thought: I know the answer now\nFinal Answer: it is 6"
CALLS = 7

PLAN = "".join(f"Plan: the next number\n#E{n} = add[{n}]\n" for n in range(1, 5)) + (
    "Plan: say it\n#E5 = LLM[say #E4]\nPlan: say it again\n#E6 = LLM[say #E3]\n"
)
NUMBERED = "".join(f'{n}. add("{n}")\n' for n in range(1, 6)) + "6. join()\n"
ACTIONS = json.dumps([{"ACTION": "add", "ARGUMENTS": [str(n)], "EXPLANATION": "the next number"} for n in range(4)])


def turn(tool: str, value: str) -> str:
    return json.dumps({"thought": "I need the next number.", "tool": tool, "tool_input": value})


SCRIPTS: dict[str, list[str | list[str]]] = {
    # A list in a script is a reply with native calls: their arguments.
    "react": [ACTION.format(n=n) for n in range(CALLS - 1)] + [ANSWER],
    "json": [turn("add", str(n)) for n in range(CALLS - 1)] + [turn("final_answer", "it is 6")],
    "tool_calling": [[str(n)] for n in range(CALLS - 1)] + ["it is 6"],
    "rewoo-plan": [PLAN],
    "rewoo-work": ["it is 4"],
    "rewoo-solve": ["it is 6"],
    "compiler-plan": [NUMBERED],
    "compiler-join": ["Thought: I know the answer now.\nFinish: it is 6"],
    "phased-reason": ["I need the next numbers."] * CALLS,
    "phased-react": [ACTIONS] * CALLS,
    "phased-reply": ["it is 6"] * CALLS,
}
"""The replies of each model of the endpoint, a turn each."""

_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_PATHS = {"anthropic": b"/messages ", "responses": b"/responses ", "gemini": b"enerateContent"}
_MODEL = re.compile(rb'"model": ?"([^"]+)"|/models/([^:]+):')
_ASSISTANT = re.compile(rb'"role": ?"(?:assistant|model)"|"type": ?"function_call"')
_STREAMED = re.compile(rb'"stream": ?true|:stream')
_USAGE = {"prompt_tokens": 300, "completion_tokens": 30, "total_tokens": 330}


def _bodies(replies: list[str | list[str]]) -> list[tuple[bytes, bytes]]:
    made = []
    for reply in replies:
        message, deltas = _said(reply) if isinstance(reply, str) else _called(reply)
        finish = "stop" if isinstance(reply, str) else "tool_calls"
        plain = json.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "model": "loopback",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": _USAGE,
            }
        ).encode()
        events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        events.append({"choices": [], "usage": _USAGE})
        stream = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
        made.append((plain, stream))
    return made


def _said(text: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    return {"role": "assistant", "content": text}, [{"content": text[i : i + 20]} for i in range(0, len(text), 20)]


def _called(inputs: list[str]) -> tuple[dict[str, object], list[dict[str, object]]]:
    calls = [
        {
            "index": i,
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "add", "arguments": json.dumps({"n": n})},
        }
        for i, n in enumerate(inputs)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}, [{"tool_calls": [call]} for call in calls]


def _bodies_of_wire(wire: str, replies: list[str | list[str]]) -> list[tuple[bytes, bytes]]:
    made = [WIRES[wire].write(reply) for reply in replies]
    return [(json.dumps(whole).encode(), b"".join(map(event, events))) for whole, events in made]


_BODIES = {("chat", name): _bodies(replies) for name, replies in SCRIPTS.items()} | {
    (wire, name): _bodies_of_wire(wire, replies) for wire in WIRES for name, replies in SCRIPTS.items()
}


class _Endpoint(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, mark, body = self.buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not mark or length is None or len(body) < int(length[1]):
            return
        self.buffer = b""
        wire = next((name for name, path in _PATHS.items() if path in head), "chat")
        named = _MODEL.search(body) or _MODEL.search(head)
        script = _BODIES[wire, (named[1] or named[2]).decode()]  # type: ignore[index]
        plain, stream = script[min(len(_ASSISTANT.findall(body)), len(script) - 1)]
        if _STREAMED.search(body) or _STREAMED.search(head):
            kind, content = b"text/event-stream", stream
        else:
            kind, content = b"application/json", plain
        self.transport.write(  # type: ignore[attr-defined]
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(content), content)
        )


def _serve(port: multiprocessing.Queue[int]) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Endpoint, "127.0.0.1", 0, backlog=4096)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def start() -> tuple[multiprocessing.Process, str]:
    """The endpoint's process, and its base address."""
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=_serve, args=(port,), daemon=True)
    process.start()
    return process, f"http://127.0.0.1:{port.get()}/v1"
