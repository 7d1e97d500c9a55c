"""Handle a customer's request. A person approves each refund before it happens.

    python examples/support_agent.py "The lamp of order 1042 arrived broken. I want my money back."

The orders are in an SQLite file. `find_order` only reads, so it runs at once. `refund` has effects: with
`approve="effects"` the run waits for a person. Plait never performs an approved refund twice, also not if the program
is killed and the run is resumed.
"""

import argparse
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import plait

ORDERS = [(1041, "Ada", "pear tree", 45.0, "delivered"), (1042, "Ben", "lamp", 20.0, "delivered")]


class Shop:
    """The shop's tools: the methods that are marked. Each opens the database file anew."""

    def __init__(self, database: str | Path) -> None:
        self._database = str(database)
        with closing(sqlite3.connect(self._database)) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS orders "
                "(number INTEGER PRIMARY KEY, customer TEXT, item TEXT, price REAL, status TEXT)"
            )
            connection.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, ?)", ORDERS)

    @plait.tool(read_only=True)
    def find_order(self, number: int) -> dict[str, str | float]:
        """Find an order: its customer, item, price in euros and status.

        Args:
            number: The number of the order, such as 1041.
        """
        with closing(sqlite3.connect(self._database)) as connection:
            row = connection.execute(
                "SELECT customer, item, price, status FROM orders WHERE number = ?", (number,)
            ).fetchone()
        if row is None:
            raise plait.ToolError(f"There is no order {number}.", hint="Ask the customer for the order's number.")
        return dict(zip(("customer", "item", "price", "status"), row, strict=True))

    @plait.tool
    def refund(self, number: int) -> str:
        """Refund an order in full.

        Args:
            number: The number of the order.
        """
        with closing(sqlite3.connect(self._database)) as connection, connection:
            changed = connection.execute(
                "UPDATE orders SET status = 'refunded' WHERE number = ? AND status = 'delivered'", (number,)
            ).rowcount
        if not changed:
            raise plait.ToolError(f"Order {number} cannot be refunded.", hint="Look at its status.")
        return f"Order {number} is refunded."


def make_agent(database: str | Path, model: str = "local", journal: str | Path | None = None) -> plait.Agent:
    return plait.Agent(
        "react",
        model=model,
        tools=[Shop(database)],
        approve="effects",
        grounding="refuse",
        limits=plait.Limits(steps=8),
        journal=journal,
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Handle a customer's request.")
    options.add_argument("request")
    options.add_argument("--database", default="orders.db")
    options.add_argument("--model", default="local")
    given = options.parse_args()
    agent = make_agent(given.database, given.model)
    run = agent.run(given.request)
    while run.status == "waiting":  # an approval, or a question of the model: both are answered here
        print(run.reason)
        run = agent.resume(run, input("> "))
    print(run.answer if run.status == "answered" else f"{run.status}: {run.reason}")
    print(f"Every request and response: plait show {run.id}")
    return 0 if run.status == "answered" else 1


if __name__ == "__main__":
    sys.exit(main())
