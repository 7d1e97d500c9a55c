"""Tools of your own: typed functions. `plait run "..." --tools examples/tools.py` offers both to the model."""

from pathlib import Path

import plait


@plait.tool(read_only=True)
def population(city: str) -> int:
    """Number of people living in a city of France.

    Args:
        city: The city's name, such as Lyon.
    """
    people = {"Paris": 2133111, "Marseille": 873076, "Lyon": 522250, "Nice": 348085}
    if city not in people:
        raise plait.ToolError(f"Nothing is known of {city!r}.", hint=f"Known are {', '.join(people)}.")
    return people[city]


@plait.tool
def write_note(text: str) -> str:
    """Adds a line to the notes."""
    with Path("notes.txt").open("a") as file:
        file.write(text + "\n")
    return "written"
