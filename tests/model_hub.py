"""A model hub on the loopback with one file. It redirects to the file, as the real hub does for every large one."""

from __future__ import annotations

import hashlib
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

COMMIT = "c0" * 20


class Hub:
    """Answers HEAD with the commit and the hash, and GET with ranges. `asked` is what came.

    `cut` is where a GET breaks off, for the next `cuts` of them; `status` and `silence` are those of a HEAD.
    """

    def __init__(self) -> None:
        self.data = b""
        self.cut, self.cuts = 0, 1 << 30
        self.status, self.silence = 200, 0.0
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        hub = self

        class Answer(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def head(self, status: int, **headers: str) -> None:
                hub.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()

            def do_HEAD(self) -> None:
                time.sleep(hub.silence)
                if hub.status != 200:
                    return self.head(hub.status, Content_Length="0")
                sha = hashlib.sha256(hub.data).hexdigest()
                return self.head(
                    302,
                    X_Repo_Commit=COMMIT,
                    X_Linked_Etag=f'"{sha}"',
                    X_Linked_Size=str(len(hub.data)),
                    Location=f"{hub.url}/blobs/{sha}".replace(
                        "127.0.0.1", "localhost"
                    ),  # another host, as the real one
                    Content_Length="0",
                )

            def do_GET(self) -> None:
                start = int(self.headers.get("Range", "bytes=0-")[len("bytes=") :].split("-")[0])
                rest, size = hub.data[start:], len(hub.data)
                here = {"Content_Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
                self.head(206 if start else 200, Content_Length=str(len(rest)), **here)
                if hub.cut and hub.cuts:
                    hub.cuts -= 1
                    rest = rest[: hub.cut]
                self.wfile.write(rest)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
