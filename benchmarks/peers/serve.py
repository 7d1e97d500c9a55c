"""The endpoint that all agents ask: llama.cpp with the embedded model, behind a proxy that counts.

    python serve.py                     prints {"url": ..., "key": ...} when the model is loaded; ends with its stdin
    python serve.py --template own      with the chat template of the model file as it stands

The model is served as Plait serves it (`src/plait/models/serve_gguf.py`: one thread, temperature 0, at most 2,048
tokens a reply). An agent asks `URL/LABEL/v1/...`; `URL/LABEL/spent` says what was asked under that label, as the
server counted it, and the seconds of CPU that it took. With --log each request and reply is written there, a line each.

**The template.** With the one in its file (Qwen's, which asks for `<tool_call>` tags) this model writes its calls as
a fenced block of JSON, in which llama.cpp sees no call: see README.md. llama.cpp finds out from a template how calls
look, so `fenced` is the same template asking for, and showing, what this model writes: then they arrive as
`tool_calls`. Requests without tools read the same with both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import struct
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

NAME = "qwen2.5-coder-1.5b"
FENCE = "```"
CHANGES = (
    (r" within <tool_call></tool_call> XML tags:\n<tool_call>\n{{", rf" in a block of code:\n{FENCE}json\n{{"),
    (r"<args-json-object>}}\n</tool_call>", rf"<args-json-object>}}\n{FENCE}"),
    (r"""'\n<tool_call>\n{"name": "'""", rf"""'\n{FENCE}json\n{{"name": "'"""),
    (r"'}\n</tool_call>'", rf"'}}\n{FENCE}'"),
)
"""What makes `fenced` of the file's own template."""
FLOOD = "\n" * 8
"""Ends a reply: what would come is line ends up to the token limit, minutes of them."""


def own_template(path: Path) -> str:
    """The chat template in a GGUF file: after its key stand the type (8: a string), the length and the text."""
    with path.open("rb") as file:
        head = file.read(16_000_000)
    key = b"tokenizer.chat_template"
    at = head.index(key) + len(key)
    kind, length = struct.unpack_from("<IQ", head, at)
    if kind != 8:
        raise SystemExit(f"{path.name}: its chat template is no text.")
    return head[at + 12 : at + 12 + length].decode()


def fenced_template(path: Path) -> str:
    """The same, with calls as fenced JSON."""
    template = own_template(path)
    for old, new in CHANGES:
        if template.count(old) != 1:
            raise SystemExit(f"{path.name}: its template is not the one that is changed here ({old!r}).")
        template = template.replace(old, new)
    return template


def loaded(path: Path, key: str, template: str, n_ctx: int) -> Any:
    """A llama.cpp server in this process, with the settings of Plait's own."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.verbosity = 1
    params.model.path = str(path)
    params.model_alias = {NAME}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [key]
    params.ui = params.endpoint_slots = params.warmup = params.fit_params = False
    params.n_parallel, params.n_predict, params.n_ctx = 1, 2048, n_ctx
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.cache_prompt, params.cache_ram_mib = True, 512
    params.sampling.seed, params.sampling.temp = 0, 0.0
    if template == "fenced":
        params.chat_template = fenced_template(path)
    return xllamacpp.Server(params)


def used(body: bytes) -> tuple[Counter[str], str]:
    """Tokens and native calls of a reply, whole or streamed, and how it finished."""
    found: Counter[str] = Counter()
    finish = ""
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] or [body]
    calls: set[Any] = set()
    for line in lines:
        try:
            reply = json.loads(line)
        except ValueError:
            continue
        for choice in reply.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            said = choice.get("message") or choice.get("delta") or {}
            calls |= {call.get("index", at) for at, call in enumerate(said.get("tool_calls") or ())}
        if usage := reply.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            found.update(
                tokens_in=usage["prompt_tokens"] - found["tokens_in"],
                tokens_out=usage["completion_tokens"] - found["tokens_out"],
                cached=cached - found["cached"],
            )
    found["native_calls"] = len(calls)
    return found, finish


def unflooded(asked: bytes) -> bytes:
    """The request, with `FLOOD` among its stop strings."""
    body = json.loads(asked) if asked else {}
    if "messages" not in body:
        return asked
    stop = body.get("stop") or []
    return json.dumps({**body, "stop": [*([stop] if isinstance(stop, str) else stop), FLOOD]}).encode()


class Proxy:
    """Passes requests on and counts them by label."""

    def __init__(self, server: str, log: Path | None) -> None:
        self.server = server
        self.log = log
        self.spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    async def spent_by(self, request: web.Request) -> web.Response:
        return web.json_response(self.spent[request.match_info["label"]])

    async def passed(self, request: web.Request) -> web.StreamResponse:
        label, path = request.match_info["label"], request.match_info["path"]
        asked, began, cpu = await request.read(), time.time(), time.process_time()
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        limit = aiohttp.ClientTimeout(total=None)
        got = bytearray()
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(request.method, f"{self.server}/{path}", data=unflooded(asked), headers=headers) as reply,
        ):
            answer = web.StreamResponse(status=reply.status, headers={"Content-Type": reply.headers["Content-Type"]})
            await answer.prepare(request)
            async for piece in reply.content.iter_any():
                got += piece
                await answer.write(piece)
            await answer.write_eof()
        if request.method == "POST":
            counts, finish = used(bytes(got))
            counts.update(calls=1, refused=reply.status >= 400, cut=finish == "length")
            for name, count in counts.items():
                self.spent[label][name] += count
            # One request at a time on one thread: what this process used meanwhile, whoever else had the machine.
            self.spent[label]["model_cpu"] += time.process_time() - cpu
            self._write(label, path, asked, bytes(got), reply.status, time.time() - began)
        return answer

    def _write(self, label: str, path: str, asked: bytes, got: bytes, status: int, seconds: float) -> None:
        if self.log is not None:
            texts = {"request": asked.decode(errors="replace"), "reply": got.decode(errors="replace")}
            line = {"label": label, "path": path, "status": status, "seconds": round(seconds, 2), **texts}
            with self.log.open("a") as file:
                file.write(json.dumps(line) + "\n")


async def serve(options: argparse.Namespace) -> None:
    key = secrets.token_urlsafe(16)
    server = loaded(options.file.expanduser(), key, options.template, options.n_ctx)
    proxy = Proxy(server.listening_address, options.log)
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_get("/{label}/spent", proxy.spent_by)
    app.router.add_route("*", "/{label}/{path:.*}", proxy.passed)
    # A request whose client went away is given up at the model as well.
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.port)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "key": key, "model": NAME}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    os._exit(0)  # past llama.cpp's destructors: ending it while it generates has crashed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--file", type=Path, default=Path("~/.cache/plait/models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")
    )
    parser.add_argument("--template", choices=["fenced", "own"], default="fenced")
    parser.add_argument("--n-ctx", type=int, default=16384)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="write each request and reply there")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
