"""The usual model hosts and local servers: their addresses, their keys, and what they can do.

The table is `hosts.json`. What depends on the model is in `families.py`. This data saves a refused request. The first
refusal (`Unsupported`) corrects outdated data, and users can set abilities in plait.toml. `docs/generate_reference.py`
writes it into docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from plait.core.errors import ConfigError
from plait.models.base import OPENAI, Abilities, RequestDialect
from plait.models.families import family_of
from plait.models.wires.wire import CHAT

LOCAL_TEMPERATURE = 0.0
"""The temperature for models on the user's machine, so that a run is repeatable. Many hosted models refuse any."""


THREADS = "PLAIT_THREADS"
"""The environment variable with the number of threads of local models."""


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """A known host. A `local` server needs no key. `wire` names its protocol.

    `other_keys` are further environment variables that may hold the key. `overflow` is a pattern of its words for a
    prompt that is too long. `embeddings`: it has `/embeddings`. `span_name` is its name in OpenTelemetry's conventions,
    if they use another one. `chat_lacks` are the abilities that it lacks when asked through chat completions instead of
    its own wire. `example` is the name of one of its models. `source` is a page of its documentation, `date` the month
    in which it, or a text that cites it, was read. `note` explains an entry to its maintainers.
    """

    name: str
    base_url: str
    abilities: Abilities
    dialect: RequestDialect = OPENAI
    local: bool = False
    wire: str = CHAT
    other_keys: tuple[str, ...] = ()
    overflow: str = ""
    embeddings: bool = False
    span_name: str = ""
    chat_lacks: tuple[str, ...] = ()
    example: str = ""
    source: str = ""
    date: str = "2026-11"
    note: str = ""

    @property
    def base_env(self) -> str:
        """Return the environment variable that replaces `base_url`."""
        return f"{self.name.upper()}_BASE_URL"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the environment variables that may hold the key. The first one that is set counts."""
        return (f"{self.name.upper()}_API_KEY", *self.other_keys)

    def find_access(
        self, spec: str, env: Mapping[str, str], instead: str, *, require_key: bool = True
    ) -> tuple[str, str, str]:
        """Return the address, the variable of the key, and the key. Raises `ConfigError` if a required key is missing
        or cannot be sent. `instead` is what the error suggests to users without a key."""
        moved = env.get(self.base_env, "").strip()
        address = check_address(moved, self.base_env) if moved else self.base_url
        for key_env in self.keys:
            if key := env.get(key_env, "").strip():
                return address, key_env, check_key(key, key_env) if require_key else key
        if require_key and not self.local and address == self.base_url:
            hint = f"Set it in the environment (export {self.keys[0]}=...), or use {instead}."
            raise ConfigError(f"{spec} needs a key, and {' or '.join(self.keys)} is not set.", hint=hint)
        return address, self.keys[0], ""


_ROWS = msgspec.json.decode(Path(__file__).with_name("hosts.json").read_bytes(), type=tuple[Host, ...])
HOSTS: dict[str, Host] = {host.name: host for host in _ROWS}

OVERFLOWS = "|".join(host.overflow for host in HOSTS.values() if host.overflow)
"""Matches each host's words for a prompt that is too long: a gateway passes on those of other hosts."""


def abilities_of(host: str, name: str, wire: str = "") -> Abilities:
    """Return what a model can do on a host of `HOSTS` ("" is no known host), asked through `wire`."""
    found = HOSTS[host].abilities if host else Abilities()
    if host and wire == CHAT != HOSTS[host].wire:
        found = found.without(*HOSTS[host].chat_lacks)
    if family := family_of(name):
        found = found.without(*family.lacks, *(family.host_lacks if host == family.host else ()))
    return found


def wire_of(host: str, name: str, address: str) -> str:
    """Return the wire of a model on a host of `HOSTS` ("" is no known host) at `address`.

    A family's own wire is used at the host's own address only: a server elsewhere, such as a proxy, may have no other
    endpoint than the one that all models of the host have.
    """
    family = family_of(name)
    if host and family and family.host == host and address == HOSTS[host].base_url:
        return family.wire or HOSTS[host].wire
    return HOSTS[host].wire if host else CHAT


def is_reasoner(name: str) -> bool:
    """Return whether a name is that of one of OpenAI's reasoning models, at any host."""
    family = family_of(name)
    return family is not None and family.host == "openai" and bool(family.efforts)


def check_address(address: str, where: str) -> str:
    """Return a valid base address without secrets. Raises `ConfigError`."""
    try:
        parts = urlsplit(address.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{where} is not an address: {address!r}.", hint="It looks like https://host/v1.")
    if parts.username is not None or parts.password is not None:
        # Do not show it: addresses appear in messages and journals, secrets never.
        raise ConfigError(f"{where} holds a password.", hint="Put it in the environment and name it in key_env.")
    return address.strip().rstrip("/")


def check_key(key: str, where: str) -> str:
    """Return a key that can be sent in a header. Raises `ConfigError`, which does not show the key."""
    at = next((at for at, sign in enumerate(key) if not (sign.isascii() and sign.isprintable())), None)
    if at is None:
        return key
    what = "a line end" if key[at] in "\r\n" else "a control character" if key[at].isascii() else "a sign beyond ASCII"
    hint = "A key is one line of ASCII letters, digits and signs. Copy it again."
    raise ConfigError(f"{where} holds {what} (character {at + 1} of {len(key)}).", hint=hint)
