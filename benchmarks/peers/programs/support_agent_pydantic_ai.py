"""`examples/support_agent.py` with pydantic-ai. A file has the conversation of a run that waits."""

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter

ORDERS = [(1041, "pear tree", 45.0, "delivered"), (1042, "lamp", 20.0, "delivered")]
WAITING = Path("waiting.json")


class Db:
    def __init__(self, path: str) -> None:
        self.path = path
        self.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item, price, status)")
        for order in ORDERS:
            self.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", *order)

    def execute(self, sql: str, *values: object) -> list[tuple[str | float, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(sql, values).fetchall()


agent = Agent(deps_type=Db, output_type=[str, DeferredToolRequests])


@agent.tool
def find_order(ctx: RunContext[Db], number: int) -> dict[str, str | float]:
    """Find an order: its item, its price in euros and its status."""
    for row in ctx.deps.execute("SELECT item, price, status FROM orders WHERE number = ?", number):
        return dict(zip(("item", "price", "status"), row, strict=True))
    raise ModelRetry(f"There is no order {number}.")


@agent.tool(requires_approval=True)
def refund(ctx: RunContext[Db], number: int) -> str:
    """Refund an order in full."""
    change = "UPDATE orders SET status = 'refunded' WHERE number = ? AND status = 'delivered' RETURNING number"
    if not ctx.deps.execute(change, number):
        raise ModelRetry(f"Order {number} cannot be refunded.")
    return f"Order {number} is refunded."


options = argparse.ArgumentParser()
options.add_argument("request", nargs="?")
options.add_argument("--resume", action="store_true")
options.add_argument("--model", default="gpt-5.6")
given, db = options.parse_args(), Db("orders.db")
model, results = f"openai-chat:{given.model}", None
messages = ModelMessagesTypeAdapter.validate_json(WAITING.read_bytes()) if given.resume else []
while True:
    if given.resume:
        results = DeferredToolResults()
        for call in messages[-1].parts:
            if call.part_kind == "tool-call":
                reply = input(f"May {call.tool_name} be called with {call.args}?\n> ")
                results.approvals[call.tool_call_id] = True if reply == "yes" else ToolDenied(reply)
    run = agent.run_sync(given.request, model=model, deps=db, message_history=messages, deferred_tool_results=results)
    messages = run.all_messages()
    if isinstance(run.output, str):
        break
    WAITING.write_bytes(run.all_messages_json())
    given.request, given.resume = None, True
print(run.output)
WAITING.unlink(missing_ok=True)
