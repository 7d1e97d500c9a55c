"""A chat-completions endpoint on this machine that answers from a script: to try endpoints without a key.

    server = Endpoint("examples/two-cities.json")     # listens at server.url
    server.close()

It gives the script's replies one after another and begins again behind the last.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Answers requests with JSON."""

    def answer(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on the terminal."""


class LocalServer:
    """Listens on this machine, at `url`, until it is closed."""

    def __init__(self, handler: type[JsonHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class Endpoint(LocalServer):
    """`refuse` names fields of a request that it answers with an error 400, as some servers do with `stop`."""

    def __init__(self, script: str, refuse: tuple[str, ...] = ()) -> None:
        replies = json.loads(Path(script).read_text())
        given = 0

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                nonlocal given
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for name in refuse:
                    if name in body:
                        error = {"message": f"Unsupported parameter: '{name}'.", "param": name}
                        return self.answer(400, {"error": error})
                reply = replies[given % len(replies)]
                given += 1
                said: dict[str, Any] = {"text": reply} if isinstance(reply, str) else reply
                used = said.get("usage", {"input_tokens": 100, "output_tokens": 20})
                return self.answer(
                    200,
                    {
                        "object": "chat.completion",
                        "model": body["model"],
                        "choices": [
                            {
                                "index": 0,
                                "message": {"role": "assistant", "content": said["text"]},
                                "finish_reason": "stop",
                            }
                        ],
                        "usage": {
                            "prompt_tokens": used["input_tokens"],
                            "completion_tokens": used["output_tokens"],
                            "prompt_tokens_details": {
                                "cached_tokens": used.get("cached_tokens", 0),
                                "cache_write_tokens": used.get("cache_write_tokens", 0),
                            },
                            "completion_tokens_details": {"reasoning_tokens": used.get("reasoning_tokens", 0)},
                        },
                    },
                )

        super().__init__(Handler)
