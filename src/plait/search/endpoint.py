"""The embedder of an endpoint that speaks `/embeddings` as OpenAI's does. One POST per batch of texts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from plait.background import run_aside
from plait.core.errors import BadResponse, ConfigError, ModelError
from plait.models import http
from plait.models.presets import HOSTS, check_address, check_key
from plait.models.wires.refusals import Target, bad_response, failure
from plait.pickles import require_no_credentials
from plait.search.embedders import normalize_rows

if TYPE_CHECKING:
    from plait.search.embedders import Vectors

PROVIDERS = tuple(host.name for host in HOSTS.values() if host.embeddings)
"""The providers whose endpoints have `/embeddings`."""
BATCH = 128
"""Texts of one request."""
BATCH_CHARACTERS = 200_000
"""Characters of one request: within the 300,000 tokens that hosts allow, in any script."""
TEXT_CHARACTERS = 8_000
"""Characters of a text that are sent. Hosts refuse more than about 8,000 tokens."""
TRIES = 3
MAX_WAIT_SECONDS = 20.0
MAX_BODY = 64 << 20


def load_endpoint_embedder(spec: str, env: Mapping[str, str] | None = None) -> EndpointEmbedder:
    """Return the embedder of `provider:model`. Raises `ConfigError` for an unknown provider or a missing key."""
    env = os.environ if env is None else env
    provider, _, model = spec.partition(":")
    if provider not in PROVIDERS:
        known = ", ".join(f"{name}:NAME" for name in PROVIDERS)
        raise ConfigError(f"{spec!r} is not an embedder.", hint=f"There are: local, {known}.")
    if not model.strip():
        raise ConfigError(f"{spec!r} names no model.", hint=f"Write {provider}:NAME.")
    address, _, key = HOSTS[provider].find_access(spec, env, "the local embedder: local")
    return EndpointEmbedder(model.strip(), address, key, provider=provider)


class EndpointEmbedder:
    """An embedding model behind `base_url`. Its `dim` is known after the first answer. Any thread may use it.

    A request is tried `tries` times if the endpoint is overloaded or fails. `timeout`: its longest silence in seconds.
    """

    def __init__(
        self, model: str, base_url: str, key: str = "", *, provider: str = "", timeout: float = 60.0, tries: int = TRIES
    ) -> None:
        host = HOSTS.get(provider)
        base_env = host.base_env if host else ""
        address = check_address(base_url, base_env or "base_url")
        key_env = host.keys[0] if host and host.keys else ""
        self._target = Target(address, model, key_env, base_env, (key,) if key else ())
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        check_key(key, key_env or f"The key for {address}")
        self.dim = 0
        self._timeout = timeout
        self._tries = tries
        # One model's name may mean other weights on another server.
        usual = host is not None and host.base_url == base_url
        server = "" if usual else "@" + hashlib.sha256(base_url.encode()).hexdigest()[:16]
        self.name = f"{provider or 'endpoint'}:{model}{server}"

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        require_no_credentials(repr(self), self._headers)
        return vars(self)

    def __deepcopy__(self, memo: object) -> EndpointEmbedder:
        return self

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Raises a `ModelError` that says what was wrong."""
        import numpy as np

        # Hosts refuse an empty text; a blank means the same.
        sent = [text[:TEXT_CHARACTERS].encode("utf-8", "replace").decode() or " " for text in texts]
        if not sent:
            return normalize_rows([], 0, self.dim, self.name)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return np.concatenate(asyncio.run(self._embed(sent)))
        return np.concatenate(run_aside(self._embed(sent)))

    async def _embed(self, texts: list[str]) -> list[Vectors]:
        return [self._read(await self._ask(batch), len(batch)) for batch in _batches(texts)]

    async def _ask(self, texts: list[str]) -> bytes:
        body = msgspec.json.encode({"model": self._target.name, "input": texts, "encoding_format": "float"})
        for number in range(1, self._tries + 1):
            try:
                return await self._post(body)
            except ModelError as error:
                wait = error.after if error.after is not None else 0.25 * 2**number
                if not error.retry or number == self._tries or wait > MAX_WAIT_SECONDS:
                    raise
                await asyncio.sleep(wait)
        raise AssertionError("tries should be 1 or more")

    async def _post(self, body: bytes) -> bytes:
        answer = http.HttpAnswer()
        size = 0

        def is_too_long(piece: bytes) -> bool:
            nonlocal size
            size += len(piece)
            return size > MAX_BODY

        sent_to = await http.post(self._target, "embeddings", body, self._headers, self._timeout, answer, is_too_long)
        if answer.status != 200:
            raise failure(answer.status, answer.body, sent_to, path="embeddings", headers=answer.headers)
        if answer.cut:
            raise bad_response(f"sent more than {MAX_BODY >> 20} MiB.", answer.body, sent_to, None)
        return answer.body

    def _read(self, body: bytes, count: int) -> Vectors:
        """Return the vectors of an answer, in the order of the texts."""
        try:
            rows = sorted(msgspec.json.decode(body)["data"], key=lambda row: int(row["index"]))
            numbers = [_read_numbers(row["embedding"]) for row in rows]
            complete = [int(row["index"]) for row in rows] == list(range(count))
        except (ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError):
            raise bad_response("did not send a list of embeddings.", body, self._target, None) from None
        who = f"{self._target.endpoint} ({self._target.name})"
        if not complete:
            raise BadResponse(f"{who} sent {len(numbers)} embeddings for {count} texts.")
        vectors = normalize_rows(numbers, count, self.dim, who, BadResponse)
        self.dim = vectors.shape[1]
        return vectors


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


def _read_numbers(embedding: Any) -> Any:
    """Return the numbers of an embedding. Some servers always send them as base64 of float32."""
    if not isinstance(embedding, str):
        return embedding
    import numpy as np

    return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
