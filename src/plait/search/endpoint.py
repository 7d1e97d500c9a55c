"""An endpoint that speaks `/embeddings` as OpenAI's does. One POST a batch; secrets never stand in a message."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from plait.core.errors import (
    BadRequest,
    BadResponse,
    ModelError,
    RateLimited,
    Refused,
    ServerFailed,
    Unreachable,
    UsageError,
)
from plait.core.hosts import HOSTS
from plait.core.secrets import scrubber_of
from plait.search.base import unit

if TYPE_CHECKING:
    from plait.search.base import Vectors

BATCH = 128
"""Texts of one request."""
BATCH_CHARACTERS = 200_000
"""Characters of one request: within the 300,000 tokens that hosts allow, whatever the script."""
TEXT_CHARACTERS = 8_000
"""Of a longer text the beginning is sent: hosts refuse more than some 8,000 tokens."""
TRIES = 3
LONGEST_WAIT = 20.0
MAX_BODY = 64 << 20


EMBED = ("openai", "mistral", "together", "fireworks", "ollama", "llamacpp", "lmstudio", "vllm")
"""The hosts that offer embeddings."""


def endpoint_embedder(spec: str, env: Mapping[str, str] | None = None) -> EndpointEmbedder:
    """The embedder of `provider:name`. Asks nothing of it. Raises `UsageError` for an unknown word or a missing key."""
    env = os.environ if env is None else env
    provider, _, model = spec.partition(":")
    if provider not in EMBED:
        raise UsageError(
            f"{spec!r} is no embedder.", hint=f"There are: local, {', '.join(f'{name}:NAME' for name in EMBED)}."
        )
    if not model.strip():
        raise UsageError(f"{spec!r} names no model.", hint=f"Write {provider}:NAME.")
    host = HOSTS[provider]
    moved = env.get(host.base_env, "").strip().rstrip("/")
    key = next((env[name].strip() for name in host.keys if env.get(name, "").strip()), "")
    if not (key or host.local or moved):
        raise UsageError(
            f"{spec} needs a key, and {' or '.join(host.keys)} is not set.",
            hint=f"Set it in the environment (export {host.keys[0]}=...), or use the local embedder: local.",
        )
    return EndpointEmbedder(model.strip(), moved or host.base_url, key, provider=provider, base_env=host.base_env)


class EndpointEmbedder:
    """A model behind `base_url`. Its `dim` is known with the first answer. Any thread may use it.

    Refusals for load (429) and failures of the server are tried again, `tries` times in all; `timeout` is the longest
    silence in seconds.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        key: str = "",
        *,
        provider: str = "",
        base_env: str = "",
        timeout: float = 60.0,
        tries: int = TRIES,
    ) -> None:
        self.model = model
        self.dim = 0
        self._parts = _address(base_url, base_env or "base_url")
        self._key = key
        self._base_env = base_env
        self._timeout = timeout
        self._tries = tries
        # One model's name may mean other weights on another server.
        known = HOSTS.get(provider)
        here = "" if known and known.base_url == base_url else "@" + hashlib.sha256(base_url.encode()).hexdigest()[:16]
        self.name = f"{provider or 'endpoint'}:{model}{here}"

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.name!r})"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Raises a `ModelError` that says what was wrong."""
        import numpy as np

        # An empty text is refused by hosts; a blank means the same.
        sent = [text[:TEXT_CHARACTERS].encode("utf-8", "replace").decode() or " " for text in texts]
        found = [self._checked(self._ask(batch), len(batch)) for batch in _batches(sent)]
        return np.concatenate(found) if found else unit([], 0, self.dim, self.name)

    def _checked(self, body: bytes, count: int) -> Vectors:
        try:
            rows = sorted(json.loads(body)["data"], key=lambda row: int(row["index"]))
            numbers = [_numbers(row["embedding"]) for row in rows]
            whole = [int(row["index"]) for row in rows] == list(range(count))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise BadResponse(
                self._clean(f"{self._who} answered with something that is no list of embeddings: {_start(body)}."),
                hint="Is that an address of an embeddings endpoint, and the model one for embeddings?",
            ) from None
        if not whole:
            raise BadResponse(f"{self._who} gave {len(numbers)} embeddings for {count} texts.")
        vectors = unit(numbers, count, self.dim, self._who, BadResponse)
        self.dim = vectors.shape[1]
        return vectors

    def _ask(self, texts: list[str]) -> bytes:
        body = json.dumps({"model": self.model, "input": texts, "encoding_format": "float"}).encode()
        for left in range(self._tries - 1, -1, -1):
            try:
                return self._post(body)
            except ModelError as error:
                if not (error.retry and left):
                    raise
                wait = error.after if error.after is not None else 0.5 * 2 ** (self._tries - 1 - left)
                if wait > LONGEST_WAIT:
                    raise
                time.sleep(wait)
        raise AssertionError("tries should be 1 or more")

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "User-Agent": "plait"}
        if self._key:
            if not (self._key.isascii() and self._key.isprintable()):
                raise UsageError(f"The key for {self._who} holds characters that can't be sent.")
            headers["Authorization"] = f"Bearer {self._key}"
        address = urlunsplit(self._parts._replace(path=f"{self._parts.path.rstrip('/')}/embeddings"))
        try:
            with _opener(self._parts.hostname or "").open(
                urllib.request.Request(address, body, headers, method="POST"), timeout=self._timeout
            ) as response:
                found = response.read(MAX_BODY + 1)
                if len(found) <= MAX_BODY and response.length:
                    raise ConnectionError("the connection broke")
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.headers.get("Retry-After"), _some(error)) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None  # "from None": the request and its key hang on the error
        if len(found) > MAX_BODY:
            raise BadResponse(f"{self._who} answered with more than {MAX_BODY >> 20} MiB.")
        return bytes(found)

    def _refusal(self, status: int, after: str | None, body: bytes) -> ModelError:
        said = self._clean(f"{self._who} answered {status}: {_reason(body)}.")
        if status in (401, 403):
            return Refused(said, hint="Check the key in the environment and what it allows.")
        if status == 429:
            return RateLimited(said, hint="Wait, or ask for less.", after=_seconds(after))
        if status >= 500:
            return ServerFailed(said, hint="Try again later.")
        if 300 <= status < 400:
            return BadRequest(said, hint=f"Redirects are not followed: set the right address in {self._where}.")
        hint = f"Is the address right? It is set by {self._where}." if status == 404 else ""
        return BadRequest(said, hint=hint)

    def _unreachable(self, error: Exception) -> ModelError:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            said = f"silence for {self._timeout:g} s"
        elif isinstance(reason, ConnectionRefusedError):
            said = "connection refused"
        else:
            said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return Unreachable(
            self._clean(f"{self._who} can't be reached: {said}."),
            hint=f"Is the server running, and the address right? It is set by {self._where}.",
        )

    @property
    def _who(self) -> str:
        return f"{self._parts.scheme}://{self._parts.netloc}{self._parts.path} ({self.model})"

    @property
    def _where(self) -> str:
        return self._base_env or "base_url"

    def _clean(self, text: str) -> str:
        return scrubber_of((self._key,)).text(text)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key goes to the address it is for, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(host: str) -> urllib.request.OpenerDirector:
    here = host in ("localhost", "::1") or host.startswith("127.")
    proxies = [urllib.request.ProxyHandler({})] if here else []
    return urllib.request.build_opener(_NoRedirect, *proxies)


def _address(base_url: str, where: str) -> Any:
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or True)
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"{where} is no address: {base_url!r}.", hint="It looks like https://host/v1.")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{where} holds a password.", hint="Keys come from the environment.")
    return parts


def _batches(texts: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    size = 0
    for text in texts:
        if not found or len(found[-1]) >= BATCH or size + len(text) > BATCH_CHARACTERS:
            found.append([])
            size = 0
        found[-1].append(text)
        size += len(text)
    return found


def _numbers(embedding: Any) -> Any:
    """The numbers of one embedding; some servers send them as base64 of float32 whatever is asked for."""
    if not isinstance(embedding, str):
        return embedding
    import numpy as np

    return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")


def _reason(body: bytes) -> str:
    try:
        said = json.loads(body)
        error = said.get("error", said.get("message", said)) if isinstance(said, dict) else said
        text = error.get("message") if isinstance(error, dict) else error
        return str(text)[:300].rstrip(".") if text else _start(body)
    except (ValueError, RecursionError):
        return _start(body)


def _start(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return repr(text[:120] + ("..." if len(text) > 120 else "")) if text else "nothing"


def _some(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(100_000)
    except (OSError, http.client.HTTPException):
        return b""


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
