"""Objects that JSON cannot hold, such as images and tables: a loop and its models see them by a handle.

A tool returns an `Artifact`. The run stores it and shows its handle: an id such as `image-1`, and a few words. A tool
that gets the handle receives the object. An artifact serializes itself, so a resumed run has it too.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

from msgspec import Struct

MARK = "$thing"


class ArtifactHandle(Struct, frozen=True):
    """An artifact by its id, with a few words for the model, as in `<Image 640x480 JPEG>`."""

    id: str
    about: str

    def json(self) -> dict[str, str]:
        """Return the handle as a JSON value: {"$thing": id, "is": about}."""
        return {MARK: self.id, "is": self.about}

    @staticmethod
    def read(value: Any) -> ArtifactHandle | None:
        """Return the handle that a JSON value represents, or None."""
        if isinstance(value, dict) and isinstance(value.get(MARK), str):
            return ArtifactHandle(value[MARK], str(value.get("is", "")))
        return None


def replace_handles(
    value: Any, change: Callable[[ArtifactHandle, Any], Any], change_text: Callable[[str], Any] = lambda text: text
) -> Any:
    """Return a JSON value with each handle in it replaced: `change` gets it, and its JSON."""
    if isinstance(value, str):
        return change_text(value)
    if (handle := ArtifactHandle.read(value)) is not None:
        return change(handle, value)
    if isinstance(value, dict):
        return {key: replace_handles(each, change, change_text) for key, each in value.items()}
    return [replace_handles(each, change, change_text) for each in value] if isinstance(value, list | tuple) else value


HANDLE_IN_TEXT = re.compile(rf'\{{"{re.escape(MARK)}": "[^"\\]*", "is": "[^"\\]*"\}}')
"""A handle in the text of a result, as its JSON."""


class Artifact(ABC):
    """An object that a run passes by handle. A subclass names its `kind`, a word such as "image"."""

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Artifact]]] = {}

    def __init_subclass__(cls) -> None:
        Artifact.kinds[cls.kind] = cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: Any) -> Any:
        """Tell pydantic that a tool takes the object itself."""
        from pydantic_core.core_schema import is_instance_schema

        return is_instance_schema(source)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, str]:
        """Tell pydantic that a model gives the object's id."""
        return {"type": "string", "format": core_schema["cls"].kind}

    @abstractmethod
    def about(self) -> str:
        """Describe the object in one short line, such as `<Image 640x480 JPEG>`."""

    @abstractmethod
    def dump(self) -> bytes:
        """Serialize the object."""

    @classmethod
    @abstractmethod
    def load(cls, data: bytes) -> Self:
        """Deserialize the object. Raises `ValueError` for invalid bytes."""
