"""Handle a customer's request. A person approves each refund before it happens.

    python examples/support_agent.py "The lamp of order 1042 arrived broken. I want my money back."

`find_order` only reads, so it runs at once. `refund` has effects, so the run waits for a person. Plait never makes it
twice, also if the program is killed and the run is resumed with `--resume last`.
"""

import argparse
import sqlite3
import sys
from contextlib import closing

import plait

ORDERS = [(1041, "pear tree", 45.0, "delivered"), (1042, "lamp", 20.0, "delivered")]


class Db:  # the orders of a shop, in an SQLite file
    def __init__(self, path: str) -> None:
        self.path = path
        self.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item, price, status)")
        for order in ORDERS:
            self.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", *order)

    def execute(self, sql: str, *values: object) -> list[tuple[str | float, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(sql, values).fetchall()


@plait.tool(read_only=True)
def find_order(ctx: plait.Context[Db], number: int) -> dict[str, str | float]:
    """Find an order: its item, its price in euros and its status."""
    for row in ctx.deps.execute("SELECT item, price, status FROM orders WHERE number = ?", number):
        return dict(zip(("item", "price", "status"), row, strict=True))
    raise plait.ToolError(f"There is no order {number}.")


@plait.tool
def refund(ctx: plait.Context[Db], number: int) -> str:
    """Refund an order in full."""
    change = "UPDATE orders SET status = 'refunded' WHERE number = ? AND status = 'delivered' RETURNING number"
    if not ctx.deps.execute(change, number):
        raise plait.ToolError(f"Order {number} cannot be refunded.", hint="Look at its status.")
    return f"Order {number} is refunded."


agent = plait.Agent(tools=[find_order, refund], deps=Db, approve="effects", grounding="refuse")

if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Handle a customer's request.")
    options.add_argument("request", nargs="?", default="")
    options.add_argument("--resume", metavar="RUN")
    options.add_argument("--model", default="local")
    given, db = options.parse_args(), Db("orders.db")
    agent = agent.using(model=given.model)
    run = agent.resume(given.resume, deps=db) if given.resume else agent.run(given.request, deps=db)
    while run.status == "waiting":  # for an approval
        run = agent.resume(run, input(f"{run.reason}\n> "), deps=db)
    sys.exit(print(run.answer) if run.status == "answered" else f"{run.status}: {run.reason}")
