"""What a part of the campaign gives back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Figures:
    """One line of figures, and a text for each failure."""

    line: str
    failures: list[str] = field(default_factory=list)


def line_of(**figures: int) -> str:
    """`kills 2000 resumed 2000 repeated 0`, for kills=2000, resumed=2000 and so on."""
    return " ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
