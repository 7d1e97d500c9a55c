"""Serve an agent over HTTP from your own web application. Needs the extra `server`.

    python examples/web_service.py --port 8001
    curl -N localhost:8001/ask -d '{"question": "Write a note: call Lyon"}'
    curl localhost:8001/runs/RUN/answer -d '{"answer": "yes", "question_id": "ID"}'

`POST /ask` streams what happens, one JSON object a line. The last line has the run's id and its status. A run that
waits for an approval can be answered later, also after a restart: the journal keeps it.
"""

import argparse
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import plait
from plait.core import Waiting, events

TOOLS = Path(__file__).parent / "tools.py"


def describe_run(run: plait.Run) -> dict[str, Any]:
    waits = run.outcome if isinstance(run.outcome, Waiting) else None
    return {
        "run": run.id,
        "status": run.status,
        "answer": run.answer,
        "reason": run.reason,
        "question_id": waits.question if waits else None,
    }


def make_app(agent: plait.Agent) -> Starlette:
    async def ask(request: Request) -> StreamingResponse:
        question = (await request.json())["question"]

        async def write_events() -> AsyncIterator[str]:
            async for event in agent.stream(question):
                match event:
                    case events.Thought(text=text):
                        yield json.dumps({"thought": text}) + "\n"
                    case events.Observed(call=call, observation=observation):
                        yield json.dumps({"tool": call.tool, "result": observation.text}) + "\n"
                    case events.Ended(run=run):
                        yield json.dumps(describe_run(run)) + "\n"

        return StreamingResponse(write_events(), media_type="application/x-ndjson")

    async def answer(request: Request) -> JSONResponse:
        given = await request.json()
        try:
            run = await agent.aresume(request.path_params["run"], given["answer"], question=given["question_id"])
        except plait.PlaitError as error:  # no such run, or its question is answered already
            return JSONResponse({"error": str(error)}, status_code=409)
        return JSONResponse(describe_run(run))

    return Starlette(
        routes=[Route("/ask", ask, methods=["POST"]), Route("/runs/{run}/answer", answer, methods=["POST"])]
    )


def main() -> None:
    options = argparse.ArgumentParser(description="Serve an agent over HTTP.")
    options.add_argument("--port", type=int, default=8001)
    options.add_argument("--model", default="local")
    given = options.parse_args()
    agent = plait.Agent("react", model=given.model, tools=[str(TOOLS)], approve="effects")
    uvicorn.run(make_app(agent), host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
