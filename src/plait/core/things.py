"""Objects that JSON can't hold, such as images and tables: a loop and its models see them by a handle.

A tool returns a `Artifact`; the run keeps it and shows its handle: an id such as `image-1`, and a few words. A handle
given back to a tool is the object again. A thing says how it is written down, so that a resumed run has it too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from msgspec import Struct

MARK = "$thing"


class ArtifactHandle(Struct, frozen=True):
    """A thing by its id, with a few words for the model, as in `<Image 640x480 JPEG>`."""

    id: str
    about: str

    def json(self) -> dict[str, str]:
        """The handle where JSON stands for values: {"$thing": id, "is": about}."""
        return {MARK: self.id, "is": self.about}

    @staticmethod
    def read(value: Any) -> ArtifactHandle | None:
        """The handle that a JSON value is, if it is one."""
        if isinstance(value, dict) and isinstance(value.get(MARK), str):
            return ArtifactHandle(value[MARK], str(value.get("is", "")))
        return None


class Artifact(ABC):
    """An object that goes through a run by its handle. A subclass names its `kind`, a word such as "image"."""

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Artifact]]] = {}

    def __init_subclass__(cls) -> None:
        Artifact.kinds[cls.kind] = cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type, handler: Any) -> Any:
        """Tells pydantic that a tool takes the object itself."""
        from pydantic_core.core_schema import is_instance_schema

        return is_instance_schema(source)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, str]:
        """Tells pydantic that a model gives the object's id."""
        return {"type": "string", "format": core_schema["cls"].kind}

    @abstractmethod
    def about(self) -> str:
        """The object in a few words, in one line, as in `<Image 640x480 JPEG>`."""

    @abstractmethod
    def dump(self) -> bytes:
        """The object written down."""

    @classmethod
    @abstractmethod
    def load(cls, data: bytes) -> Self:
        """The object again. Raises `ValueError` when these are not its bytes."""
