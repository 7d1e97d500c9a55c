"""A chat-completions endpoint on this machine that answers from a script, which the name of the model chooses.

A turn is a text, an answer (a dict for the tool or the schema that takes it), or calls: pairs of a tool's name and the
values of its parameters, in the order of its schema. The turn follows from the assistant's messages in the request; in
the script "long" from the number of requests, because a compacted request has fewer messages.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LINES = [{"text": "lamp", "count": 2, "price": "20"}, {"text": "shipping", "count": 1, "price": "5"}]
INVOICE = {"number": "17", "seller": "Ada Ltd", "issued": None, "lines": LINES, "total": "45"}
EDIT = ("edit_file", ["add.py", "a - b", "a + b"])
FILES = 40
SCRIPTS: dict[str, list[Any]] = {
    "invoice": [{**INVOICE, "lines": LINES[:1]}, INVOICE],
    "support": [[("find_order", [1042])], [("refund", [1042])], "Order 1042 is refunded."],
    "research": [[("research", [["Warranty?", "Delivery?"]])], "Three years; two to four days."],
    "research-calls": [[("research", ["Warranty?"]), ("research", ["Delivery?"])], "Three years; two to four days."],
    "reader": [[("lookup", ["warranty"])], "Three years."],
    "code": [[("read_file", ["add.py"])], [EDIT], [("run_command", ["python3 test_add.py"])], "It adds now."],
    "code-shell": [[("read_file", ["add.py"])], [EDIT], [("shell", ["python3 test_add.py"])], "It adds now."],
    "code-files": [[("read_file", ["add.py"])], [EDIT], "It adds now."],
    "chat": ["Hello Mira.", "You are Mira."],
    "long": [*([("read_file", [f"{n:02}.txt"])] for n in range(FILES)), "No pump failed."],
}


class ScriptedEndpoint:
    """Listens at `url`. `most_chars`: longer requests are refused. `hang_at`: the turn whose request gets no answer;
    `hung` is set then. `asked` has the bodies of all requests."""

    def __init__(self, most_chars: int = 1 << 30, hang_at: int = -1) -> None:
        self.most_chars, self.hang_at, self.hung = most_chars, hang_at, threading.Event()
        self.asked: list[bytes] = []
        self.long_turn = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.asked.append(raw)
                if len(raw) > endpoint.most_chars:
                    error = {"message": "This model's maximum context length is exceeded.", "code": "context_length"}
                    self._send(400, "application/json", json.dumps({"error": error}).encode())
                    return
                body = json.loads(raw)
                message = endpoint.reply(body)
                finish = "tool_calls" if message.get("tool_calls") else "stop"
                used = {"prompt_tokens": len(raw) // 4, "completion_tokens": 20, "total_tokens": len(raw) // 4 + 20}
                head = {"id": "x", "created": 1, "model": body["model"]}
                if body.get("stream"):
                    choice = {"index": 0, "delta": message, "finish_reason": finish}
                    chunk = {**head, "object": "chat.completion.chunk", "choices": [choice], "usage": used}
                    data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
                    self._send(200, "text/event-stream", data)
                    return
                choice = {"index": 0, "message": message, "finish_reason": finish}
                whole = {**head, "object": "chat.completion", "choices": [choice], "usage": used}
                self._send(200, "application/json", json.dumps(whole).encode())

            def _send(self, status: int, kind: str, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """The message of the turn that a request asks for."""
        script, tools = (
            SCRIPTS[body["model"]],
            {each["function"]["name"]: each["function"] for each in body.get("tools") or ()},
        )
        number = sum(message["role"] == "assistant" for message in body["messages"])
        if body["model"] == "long":
            if not tools:
                return {"role": "assistant", "content": "Nothing failed in the files so far."}
            number, self.long_turn = self.long_turn, self.long_turn + 1
        if body["model"].startswith("research") and "lookup" in tools:
            script = SCRIPTS["reader"]  # a reader with the same model
        if number == self.hang_at:
            self.hung.set()
            threading.Event().wait()
        turn = script[number] if tools else script[-1]  # without tools, a model can only answer
        if isinstance(turn, dict):
            taker = next((name for name, tool in tools.items() if "seller" in tool["parameters"]["properties"]), "")
            turn = (
                [(taker, [turn[key] for key in tools[taker]["parameters"]["properties"]])]
                if taker
                else json.dumps(turn)
            )
        if isinstance(turn, str):
            return {"role": "assistant", "content": turn}
        calls = []
        for at, (name, values) in enumerate(turn):
            arguments = dict(zip(tools[name]["parameters"]["properties"], values, strict=False))
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls.append({"id": f"call_{number}_{at}", "index": at, "type": "function", "function": function})
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
