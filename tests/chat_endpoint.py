"""An endpoint of chat completions for tests that run the command line, which needs a server beside the test."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from plait.models.chat import ChatModel


class Endpoint:
    """An endpoint of chat completions in a thread. It repeats its last reply; `asked` are the requests' bodies.

    It refuses the models in `refused` as if the key were wrong.
    """

    def __init__(self, *replies: str, refused: tuple[str, ...] = ()) -> None:
        self.replies, self.asked, self.headers = list(replies), list[dict[str, Any]](), list[dict[str, str]]()
        self.refused = refused
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                endpoint.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                endpoint.headers.append(dict(self.headers))
                if endpoint.asked[-1]["model"] in endpoint.refused:
                    self.answer(401, {"error": {"message": "The key is wrong."}})
                    return
                content = endpoint.replies.pop(0) if len(endpoint.replies) > 1 else endpoint.replies[0]
                message = {"role": "assistant", "content": content}
                self.answer(200, {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})

            def answer(self, status: int, value: dict[str, Any]) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def model(self, **options: Any) -> ChatModel:
        return ChatModel(**{"spec": "fake:m", "name": "m", "endpoint": self.url, **options})

    def sent(self, name: str) -> list[Any]:
        return [body.get(name) for body in self.asked]
