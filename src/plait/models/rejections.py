"""Stores the abilities that endpoints rejected, so that a new run does not request them again.

`learned.json` in the user's state folder has one entry for each endpoint, wire, model and ability. An entry expires
after 30 days. A run records in its head what it started with, so a replay or a resumed run never reads this file.
`PLAIT_LEARNED` names another file; "off" turns this off. The file holds no keys.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from plait.core.secrets import scrubber_of
from plait.models.base import ABILITIES, Model
from plait.models.fallback import join_models, members_of
from plait.user_folders import state_folder

logger = logging.getLogger("plait")

LIFETIME = 30 * 86_400.0
"""Seconds until an entry expires."""
MAX_WORDS = 200
"""Characters that are stored of an endpoint's words."""


class LearnedRejection(Struct, frozen=True):
    """An endpoint rejected a part of a request: `said` are its words, `at` is when (seconds since 1970)."""

    endpoint: str
    wire: str
    model: str
    ability: str
    said: str
    at: float

    @property
    def expires(self) -> float:
        """Return when the entry expires, in seconds since 1970."""
        return self.at + LIFETIME


def read_rejections() -> list[LearnedRejection]:
    """Return what endpoints rejected in the last 30 days. Reads a file, sends nothing."""
    place, now = _find_file(), time.time()
    return [each for each in _read(place) if each.at <= now < each.expires] if place is not None else []


def list_rejections(model: Model) -> list[LearnedRejection]:
    """Return what the model's endpoint rejected in the last 30 days."""
    return [each for each in read_rejections() if _is_of(each, model)] if model.endpoint else []


def without_rejected(model: Model, rejections: Sequence[LearnedRejection], *, asks_for_tools: bool) -> Model:
    """Return the model without the abilities that its endpoint rejected, for a new run. An ability that the user stated
    in plait.toml stays. So do the tools if `asks_for_tools`: the loop needs native tools."""
    if not rejections:
        return model
    members = []
    for each in members_of(model):
        stays = {*getattr(each, "stated_abilities", ()), *(("tools",) if asks_for_tools else ())}
        for found in rejections if each.endpoint else ():
            if _is_of(found, each) and found.ability not in stays and getattr(each.abilities, found.ability):
                each = each.without(found.ability)
        members.append(each)
    return join_models(tuple(members))


def remember_rejection(model: Model, ability: str, said: str) -> None:
    """Store that the model's endpoint rejected an ability. Logs a warning if the file cannot be written."""
    if not model.endpoint:  # a server of this process, or none
        return
    scrub = scrubber_of(model.secrets).text
    found = LearnedRejection(
        scrub(model.endpoint), _wire_of(model), model.name, ability, scrub(said)[:MAX_WORDS], time.time()
    )
    _change(lambda known: [*(each for each in known if not (_is_of(each, model) and each.ability == ability)), found])


def forget_rejections(model: Model) -> int:
    """Delete what is stored of the model. Returns how many entries that were."""
    count = len(list_rejections(model))
    if count:
        _change(lambda known: [each for each in known if not _is_of(each, model)])
    return count


def _is_of(rejection: LearnedRejection, model: Model) -> bool:
    endpoint = scrubber_of(model.secrets).text(model.endpoint)
    return (rejection.endpoint, rejection.wire, rejection.model) == (endpoint, _wire_of(model), model.name)


def _wire_of(model: Model) -> str:
    return str(getattr(model, "wire", ""))


def _find_file() -> Path | None:
    own = os.environ.get("PLAIT_LEARNED", "")
    if own == "off":
        return None
    return Path(own).expanduser() if own else state_folder() / "learned.json"


def _read(place: Path) -> list[LearnedRejection]:
    """Return the entries of the file; none if it does not exist or is damaged."""
    try:
        found = msgspec.json.decode(place.read_bytes(), type=list[LearnedRejection])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as why:
        _warn(place, f"cannot be read ({why}). Plait ignores it and finds out again what endpoints reject.")
        return []
    return [each for each in found if each.ability in ABILITIES]


def _change(change: Callable[[list[LearnedRejection]], list[LearnedRejection]]) -> None:
    """Replace the file by a changed one, without expired entries."""
    place = _find_file()
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(f".{place.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other processes and threads change nothing meanwhile
            now = time.time()
            entries = [each for each in change(_read(place)) if now < each.expires]
            scratch = place.with_name(f".{place.name}.{os.getpid()}")
            scratch.write_bytes(msgspec.json.format(msgspec.json.encode(entries), indent=1))
            scratch.replace(place)
    except OSError as why:
        _warn(place, f"cannot be written ({why}). Plait finds out again what endpoints reject.")


@lru_cache
def _warn(place: Path, what: str) -> None:
    logger.warning("The file %s %s", place, what)
