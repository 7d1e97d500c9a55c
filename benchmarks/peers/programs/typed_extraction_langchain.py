"""`examples/typed_extraction.py` with LangChain."""

import argparse
from datetime import date
from decimal import Decimal

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from pydantic import BaseModel, Field, model_validator


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

    @model_validator(mode="after")
    def has_right_total(self) -> "Invoice":
        found = sum(line.count * line.price for line in self.lines)
        if found != self.total:
            raise ValueError(f"The lines add up to {found}, and the total is {self.total}.")
        return self


options = argparse.ArgumentParser()
options.add_argument("text")
options.add_argument("--model", default="gpt-5.6")
given = options.parse_args()
agent = create_agent(
    f"openai:{given.model}",
    response_format=ToolStrategy(Invoice),
    system_prompt="Take every value from the text. Leave out what it does not say.",
)
state = agent.invoke({"messages": [{"role": "user", "content": given.text}]})
print(state["structured_response"].model_dump_json(indent=2))
