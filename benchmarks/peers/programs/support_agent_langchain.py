"""`examples/support_agent.py` with LangChain, and LangGraph's checkpoints in an SQLite file."""

import argparse
import sqlite3
from contextlib import closing

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolErrorMiddleware
from langchain.tools import ToolRuntime, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

ORDERS = [(1041, "pear tree", 45.0, "delivered"), (1042, "lamp", 20.0, "delivered")]


class Db:
    def __init__(self, path: str) -> None:
        self.path = path
        self.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item, price, status)")
        for order in ORDERS:
            self.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", *order)

    def execute(self, sql: str, *values: object) -> list[tuple[str | float, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(sql, values).fetchall()


@tool
def find_order(runtime: ToolRuntime[Db], number: int) -> dict[str, str | float]:
    """Find an order: its item, its price in euros and its status."""
    for row in runtime.context.execute("SELECT item, price, status FROM orders WHERE number = ?", number):
        return dict(zip(("item", "price", "status"), row, strict=True))
    raise ValueError(f"There is no order {number}.")


@tool
def refund(runtime: ToolRuntime[Db], number: int) -> str:
    """Refund an order in full."""
    change = "UPDATE orders SET status = 'refunded' WHERE number = ? AND status = 'delivered' RETURNING number"
    if not runtime.context.execute(change, number):
        raise ValueError(f"Order {number} cannot be refunded.")
    return f"Order {number} is refunded."


options = argparse.ArgumentParser()
options.add_argument("request", nargs="?")
options.add_argument("--thread", default="1")
options.add_argument("--model", default="gpt-5.6")
given, db = options.parse_args(), Db("orders.db")
with SqliteSaver.from_conn_string("checkpoints.db") as saver:
    agent = create_agent(
        f"openai:{given.model}",
        tools=[find_order, refund],
        context_schema=Db,
        middleware=[
            HumanInTheLoopMiddleware({"refund": {"allowed_decisions": ["approve", "reject"]}}),
            ToolErrorMiddleware(lambda error, request: str(error) if isinstance(error, ValueError) else None),
        ],
        checkpointer=saver,
    )
    config = {"configurable": {"thread_id": given.thread}}
    asked = {"messages": [{"role": "user", "content": given.request}]} if given.request else None
    state = agent.invoke(asked, config, context=db)
    while "__interrupt__" in state:
        (waiting,) = state["__interrupt__"]
        decisions = []
        for request in waiting.value["action_requests"]:
            reply = input(f"{request['description']}\n> ")
            decisions.append({"type": "approve"} if reply == "yes" else {"type": "reject", "message": reply})
        state = agent.invoke(Command(resume={"decisions": decisions}), config, context=db)
    print(state["messages"][-1].text)
