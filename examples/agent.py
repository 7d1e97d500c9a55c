"""A first agent in Python: `python examples/agent.py`. It needs no key; the model runs on this machine."""

import plait

agent = plait.Agent("react", model="local", tools=["lookup:examples/cities.json", "calculator"])

if __name__ == "__main__":
    run = agent.run("How many people live in Lyon?")
    print(run.status, run.answer)
    print(f"{run.steps} steps, {run.usage.tokens} tokens, {run.cost_usd} USD, record {run.id}")
