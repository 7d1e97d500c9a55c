"""`examples/typed_extraction.py` with pydantic-ai."""

import argparse
from datetime import date
from decimal import Decimal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelRetry


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


agent = Agent(
    output_type=Invoice,
    instructions="Take every value from the text. Leave out what it does not say.",
    retries={"output": 2},
)


@agent.output_validator
def has_right_total(invoice: Invoice) -> Invoice:
    found = sum(line.count * line.price for line in invoice.lines)
    if found != invoice.total:
        raise ModelRetry(f"The lines add up to {found}, and the total is {invoice.total}.")
    return invoice


options = argparse.ArgumentParser()
options.add_argument("text")
options.add_argument("--model", default="gpt-5.6")
given = options.parse_args()
print(agent.run_sync(given.text, model=f"openai-chat:{given.model}").output.model_dump_json(indent=2))
