"""Every tool that ships and needs to be told nothing."""

from __future__ import annotations

from plait.tools.tool import Tool


def everything() -> tuple[Tool, ...]:
    """The tools of all toolkits but `lookup`, which needs a source, and `ask_model`, which needs a model."""
    from plait import toolkits

    made = (
        toolkits.date,
        toolkits.location,
        toolkits.weather,
        toolkits.wikipedia,
        toolkits.websearch,
        toolkits.stocks,
        toolkits.tables,
        toolkits.nasa,
        toolkits.images,
        toolkits.discord,
        toolkits.slack,
    )
    return (toolkits.calculator, *(one for make in made for one in make()))
