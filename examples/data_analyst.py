"""Analyse a CSV file: the model writes Python, which runs in a sandbox.

    python examples/data_analyst.py "In which month did we sell the most lamps?"
    python examples/data_analyst.py "Which city has the most customers?" --file customers.csv

The sandbox has no files and no network. The code reads the table through the tool `read_rows`, computes with ordinary
Python, and ends with `stop(answer)`.
"""

import argparse
import csv
import sys
from pathlib import Path

import plait
from plait.core import events

SALES = Path(__file__).parent / "sales.csv"


def make_agent(file: str | Path = SALES, model: str = "local", sandbox: str = "auto") -> plait.Agent:
    with Path(file).open(newline="", encoding="utf-8") as source:
        rows = list(csv.DictReader(source))

    @plait.tool(
        description=f"Returns all rows of the table as dicts of texts. Columns: {', '.join(rows[0])}.", read_only=True
    )
    def read_rows() -> list[dict[str, str]]:
        return rows

    return plait.Agent(
        "codeact", model=model, tools=[read_rows], sandbox=sandbox, limits=plait.Limits(steps=8), can_ask=False
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Analyse a CSV file with Python in a sandbox.")
    options.add_argument("question")
    options.add_argument("--file", default=SALES)
    options.add_argument("--model", default="local")
    given = options.parse_args()
    run = make_agent(given.file, given.model).run(given.question)
    for event in run.events:
        if isinstance(event, events.Executing):
            print(f"--- code of step {event.step}\n{event.code}", file=sys.stderr)
    print(run.answer if run.status == "answered" else f"{run.status}: {run.reason}")
    return 0 if run.status == "answered" else 1


if __name__ == "__main__":
    sys.exit(main())
