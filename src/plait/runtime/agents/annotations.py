"""What a caller says of a run: its user, tags, metadata and label. They say nothing to the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from plait.core.errors import ConfigError

LONGEST_USER, LONGEST_TAG, MOST_TAGS = 256, 64, 32
"""Characters of a user and of a tag; tags of a run."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LARGEST, DEEPEST = 16_000, 16
"""Bytes of the metadata as JSON, and its levels."""


class RunAnnotations(TypedDict, total=False):
    """Words about a run for its journal. `user` is for whom it is made, `tags` are words to find it by, `metadata` is a
    JSON object, `label` a name to find it by. `run_id` is the id of a new run: a second run with it is refused."""

    user: str | None
    tags: Iterable[str] | None
    metadata: Mapping[str, Any] | None
    label: str | None
    run_id: str | None


def check_annotations(
    *,
    user: str | None = None,
    tags: Iterable[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    label: str | None = None,
    run_id: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a head that are given (not None). Raises `ConfigError`, which names the wrong value."""
    given: dict[str, Any] = {}
    if user is not None:
        given["user"] = _check_text("user", user, LONGEST_USER)
    if tags is not None:
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise ConfigError(f"tags is {tags!r}.", hint="Give a list of texts.")
        given["tags"] = tuple(dict.fromkeys(_check_text("tag", each, LONGEST_TAG) for each in tags))
        if len(given["tags"]) > MOST_TAGS or "" in given["tags"]:
            hint = "Put the rest into metadata."
            raise ConfigError(f"A run has at most {MOST_TAGS} tags, and no empty one.", hint=hint)
    if metadata is not None:
        if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
            raise ConfigError("metadata is no object with texts as names.", hint='Give a dict, such as {"order": 17}.')
        try:
            text = msgspec.json.encode(dict(metadata))
            given["metadata"] = msgspec.json.decode(text)
        except (TypeError, ValueError, RecursionError) as why:
            hint = "Give values that JSON has."
            raise ConfigError(f"metadata can't be written as JSON: {why}.", hint=hint) from None
        if len(text) > LARGEST:
            said = f"metadata has {len(text):,} bytes as JSON, more than {LARGEST:,}."
            raise ConfigError(said, hint="Store less of it.")
        if not _has_levels(given["metadata"], DEEPEST):  # the head of a run must stay readable
            raise ConfigError(f"metadata is nested more than {DEEPEST} deep.", hint="Give it fewer levels.")
    if label is not None:
        if not isinstance(label, str):
            raise ConfigError(f"label is {label!r}.", hint="Give a text.")
        given["label"] = label
    if run_id is not None:
        if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id) or run_id == "last":
            hint = "Give letters, digits, '.', '_' and '-', 64 at most."
            raise ConfigError(f"run_id is {run_id!r}.", hint=hint)
        given["run"] = run_id
    return given


def _check_text(name: str, value: Any, longest: int) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ConfigError(f"The {name} is {value!r}.", hint="Give a text of one line, without control characters.")
    if len(value) > longest:
        raise ConfigError(f"The {name} has {len(value):,} characters, more than {longest}.", hint="Give a shorter one.")
    return value


def _has_levels(value: Any, most: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most > 0 and all(_has_levels(each, most - 1) for each in below)
