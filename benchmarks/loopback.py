"""A chat-completions endpoint on loopback that answers at once, in a process of its own.

It speaks just enough HTTP: it reads a request, counts the assistant messages in it, and gives the reply of that
turn, as one JSON body or as a stream, whichever was asked for.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re

ACTION = 'Thought: I need the next number.\nAction:\n```json\n{{"action": "add", "action_input": "{n}"}}\n```'
ANSWER = "Thought: I know the answer now\nFinal Answer: it is 6"
CALLS = 7

_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_USAGE = {"prompt_tokens": 300, "completion_tokens": 30, "total_tokens": 330}


def _bodies() -> list[tuple[bytes, bytes]]:
    texts = [ACTION.format(n=n) for n in range(CALLS - 1)] + [ANSWER]
    made = []
    for text in texts:
        plain = json.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "model": "loopback",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": _USAGE,
            }
        ).encode()
        pieces = [text[i : i + 20] for i in range(0, len(text), 20)]
        events = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        events.append({"choices": [], "usage": _USAGE})
        stream = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
        made.append((plain, stream))
    return made


class _Endpoint(asyncio.Protocol):
    bodies = _bodies()

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
        plain, stream = self.bodies[min(body.count(b'"assistant"'), CALLS - 1)]
        if b'"stream":true' in body:
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
