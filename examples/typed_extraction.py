"""Read an invoice in a text into a typed value.

    python examples/typed_extraction.py "Invoice 17 of Ada Ltd: 2 lamps at 20 euros, shipping 5 euros. Total 45."

The agent has no tools. `Invoice` says what an answer looks like, and the check compares the total with the lines. If an
answer does not fit, Plait shows the model the error.
"""

import argparse
import sys
from datetime import date
from decimal import Decimal

from pydantic import BaseModel, Field

import plait


class Line(BaseModel):
    text: str
    count: int = 1
    price: Decimal = Field(description="The price of one, in euros.")


class Invoice(BaseModel):
    number: str
    seller: str
    issued: date | None = None
    lines: list[Line]
    total: Decimal


def has_right_total(invoice: Invoice) -> str | None:
    found = sum(line.count * line.price for line in invoice.lines)
    return None if found == invoice.total else f"The lines add up to {found}, and the total is {invoice.total}."


def make_agent(model: str = "local") -> plait.Agent[None, Invoice]:
    return plait.Agent(
        "tool_calling",
        model=model,
        output=plait.OutputType(Invoice, checks=[has_right_total]),
        instructions="Take every value from the text. Leave out what it does not say.",
    )


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("text")
    options.add_argument("--model", default="local")
    given = options.parse_args()
    run = make_agent(given.model).run(given.text)
    print(run.output.model_dump_json(indent=2) if run.status == "answered" else f"{run.status}: {run.reason}")
    return 0 if run.status == "answered" else 1


if __name__ == "__main__":
    sys.exit(main())
