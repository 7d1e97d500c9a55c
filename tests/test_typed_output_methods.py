"""Where a typed answer is asked for: the provider's structured output, a tool, the command line, HTTP; instructions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import plait
from cli_support import PLAIT
from conftest import for_each
from fork_server import run_forked
from lazily import Lazy
from models_server import Asked, Server, completion
from plait.models.base import Abilities
from typed_support import BAD, GOOD, LOOPS, QUESTION, Trip, agent
from window_server import serving

openai = Lazy("openai")


@plait.tool(read_only=True)
def distance(city: str) -> int:
    """Kilometres to a city."""
    return 460


def answer_call(given: Any, id: str = "c1", name: str = "final_answer") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}


async def ask_with(
    replies: list[dict[str, Any]], abilities: Abilities, provider: str = "", **fields: Any
) -> tuple[Any, list[Any]]:
    """The run of an agent whose endpoint gives these replies, and the bodies of its requests."""
    left = iter(replies)

    async def handler(asked: Asked) -> None:
        await asked.answer(200, next(left))

    async with Server(handler) as server:
        made = plait.Agent(
            "tool_calling",
            model=server.model(abilities=abilities, provider=provider),
            journal=False,
            can_ask=False,
            **{"output": Trip, **fields},
        )
        run = await made.arun(QUESTION)
        return run, [asked.body for asked in server.asked]


WHOLE = Abilities(stream=False, stream_usage=False)


async def test_structured_output_goes_with_the_tools_where_the_endpoint_has_it() -> None:
    replies = [completion("", "tool_calls", tool_calls=[answer_call({"city": "Lyon"}, name="distance")])]
    replies += [completion(GOOD)]
    abilities = Abilities(stream=False, stream_usage=False, schema=True)
    run, bodies = await ask_with(replies, abilities, "openai", tools=[distance])
    assert run.output == Trip(city="Lyon", days=3), run.reason
    assert [tool["function"]["name"] for tool in bodies[0]["tools"]] == ["distance"]
    assert bodies[0]["response_format"]["json_schema"]["schema"]["required"] == ["city", "days"]


async def test_without_structured_output_a_tool_takes_the_answer_and_the_error_is_its_result() -> None:
    replies = [completion("", "tool_calls", tool_calls=[answer_call(json.loads(BAD))])]
    replies += [completion("", "tool_calls", tool_calls=[answer_call(json.loads(GOOD), "c2")])]
    run, bodies = await ask_with(replies, WHOLE, tools=[distance])
    assert run.output == Trip(city="Lyon", days=3), run.reason
    assert "response_format" not in bodies[0]
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in bodies[0]["tools"]}
    assert tools["final_answer"]["required"] == ["city", "days"]
    assert bodies[1]["messages"][-1]["role"] == "tool"
    assert "answer.days is missing" in bodies[1]["messages"][-1]["content"]


async def test_a_server_that_may_hold_the_whole_reply_to_the_schema_gets_none_beside_tools() -> None:
    replies = [completion("", "tool_calls", tool_calls=[answer_call(json.loads(GOOD))])]
    abilities = Abilities(stream=False, stream_usage=False, schema=True)
    _, with_tools = await ask_with(replies, abilities, tools=[distance])
    _, without = await ask_with([completion(GOOD)], abilities)
    assert "response_format" not in with_tools[0] and "response_format" in without[0]


async def test_an_answer_beside_other_calls_is_not_taken() -> None:
    both = [answer_call({"city": "Lyon"}, "c1", "distance"), answer_call(json.loads(GOOD), "c2")]
    replies = [completion("", "tool_calls", tool_calls=both), completion("", "tool_calls", tool_calls=[both[1]])]
    run, bodies = await ask_with(replies, WHOLE, tools=[distance])
    assert run.output.days == 3
    assert [each["content"][:24] for each in bodies[1]["messages"][-2:]] == ["460", "The answer was not given"]


async def test_a_scalar_is_wrapped_for_the_endpoint_and_unwrapped_for_the_program() -> None:
    abilities = Abilities(stream=False, stream_usage=False, schema=True)
    run, bodies = await ask_with([completion('{"value": [1, 2]}')], abilities, output=list[int])
    assert run.output == [1, 2] and run.answer == [1, 2]
    assert bodies[0]["response_format"]["json_schema"]["schema"]["properties"].keys() == {"value"}


@pytest.mark.parametrize("loop", ["rewoo", "phased"])
def test_the_phase_that_answers_sends_the_schema_and_the_others_do_not(loop: str) -> None:
    run = agent(loop, Trip, GOOD).run(QUESTION)
    bodies = [json.loads(call.request) for call in run.timeline.model_calls]
    assert ["response_format" in body for body in bodies] == [*[False] * (len(bodies) - 1), True]
    prompted = agent(loop, plait.OutputType(Trip, method="prompt"), GOOD).run(QUESTION)
    assert "response_format" not in json.loads(prompted.timeline.model_calls[-1].request)


# -- instructions


@pytest.mark.parametrize("loop", LOOPS)
def test_every_phase_gets_the_instructions(loop: str) -> None:
    run = agent(loop, Trip, GOOD, instructions="Answer in French.").run(QUESTION)
    for call in run.timeline.model_calls:
        messages = json.loads(call.request)["messages"]
        assert messages[0]["role"] == "system" and "Answer in French." in messages[0]["content"], call.phase


def test_a_raw_transcript_gets_the_instructions_too() -> None:
    made = agent("react", str, "x", instructions="Answer in French.").using(loop=plait.ReAct(transcript="completion"))
    assert "Answer in French." in json.loads(made.run(QUESTION).timeline.model_calls[0].request)["prompt"]


@pytest.mark.parametrize("loop", LOOPS)
def test_without_instructions_and_output_no_byte_changes(loop: str) -> None:
    def bodies(**fields: Any) -> list[Any]:
        run = agent(loop, str, '"x"' if loop in ("json", "codeact") else "x", **fields).run(QUESTION)
        return [call.request for call in run.timeline.model_calls]

    assert bodies() == bodies(instructions="")


def test_instructions_stand_below_an_own_system_prompt_whose_bytes_stay() -> None:
    own = "Reply `Final Answer:` ...\n"
    run = agent("react", str, "x", system=own, instructions="Answer in French.").run(QUESTION)
    content = json.loads(run.timeline.model_calls[0].request)["messages"][0]["content"]
    assert content == f"{own}\nAnswer in French."


def test_a_function_of_instructions_is_called_once_and_its_text_is_recorded(tmp_path: Path) -> None:
    texts = iter(["First.", "Second."])
    made = agent("react", Trip, BAD, GOOD, journal=tmp_path / "j.db", instructions=lambda: next(texts))
    run = made.run(QUESTION)
    assert all(b"First." in call.request for call in run.timeline.model_calls)
    assert made.replay(run.id).whole
    assert next(texts) == "Second."


def test_instructions_that_are_no_text_are_refused() -> None:
    with pytest.raises(plait.ConfigError, match="returned 3"):
        agent("react", str, "x", instructions=lambda: 3).run(QUESTION)
    with pytest.raises(plait.ConfigError, match=r"Agent\(instructions=3\) is invalid"):
        plait.Agent(instructions=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_agent_without_tools_is_not_forbidden_to_answer_from_memory(loop: str) -> None:
    run = agent(loop, str, '"x"' if loop in ("json", "codeact") else "x").run(QUESTION)
    for call in run.timeline.model_calls:
        for message in json.loads(call.request)["messages"]:
            assert "memory" not in message["content"] and "only from" not in message["content"], call.phase


# -- the command line and HTTP


def write_files(folder: Path, *answers: str) -> list[str]:
    (folder / "script.json").write_text(json.dumps([{"text": each} for each in answers]))
    (folder / "schema.json").write_text(json.dumps(Trip.model_json_schema()))
    return ["--model", "scripted:script.json", "--loop", "tool_calling", "--schema", "schema.json", "--quiet"]


def run_plait(folder: Path, *words: str) -> Any:
    return run_forked([PLAIT, *words], cwd=folder)


def test_the_command_line_takes_a_schema_and_instructions(tmp_path: Path) -> None:
    words = write_files(tmp_path, BAD, GOOD)
    (tmp_path / "rules.txt").write_text("Answer in French.\n")
    journal = ["--journal", "j.db"]
    done = run_plait(tmp_path, "run", QUESTION, *words, *journal, "--instructions", "@rules.txt")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"city": "Lyon", "days": 3}
    assert run_plait(tmp_path, "replay", "last", *journal).returncode == 0
    assert "Answer in French." in run_plait(tmp_path, "show", "last", "--wire", *journal).stdout


@pytest.mark.parametrize(
    ("text", "why"),
    [("[1]", "schema.json holds no JSON object"), ('{"type": "objekt"}', "schema.type must be one of array, boolean")],
)
def test_a_schema_file_that_is_no_schema_is_refused(tmp_path: Path, text: str, why: str) -> None:
    words = write_files(tmp_path, GOOD)
    (tmp_path / "schema.json").write_text(text)
    done = run_plait(tmp_path, "run", QUESTION, *words, "--no-journal")
    assert done.returncode == 2 and why in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_plait_toml_has_both(tmp_path: Path) -> None:
    words = write_files(tmp_path, GOOD)
    (tmp_path / "plait.toml").write_text('[run]\nschema = "schema.json"\ninstructions = "Answer in French."\n')
    done = run_plait(tmp_path, "run", QUESTION, *words[:4], "--quiet", "--journal", "j.db", "--config", "plait.toml")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"city": "Lyon", "days": 3}), done.stderr


class Reply(BaseModel):
    city: str
    days: int


@pytest.fixture
def served(tmp_path: Path) -> plait.Agent[Any]:
    return plait.Agent("tool_calling", model=plait.Scripted([BAD, GOOD]), journal=tmp_path / "served.db")


def test_serve_takes_a_response_format(served: plait.Agent[Any]) -> None:
    with serving(served) as here, openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0) as api:
        messages: Any = [{"role": "user", "content": QUESTION}]
        got = api.chat.completions.parse(model="plait", messages=messages, response_format=Reply)
        assert got.choices[0].message.parsed == Reply(city="Lyon", days=3)
        loose: Any = {"type": "json_object"}
        other = api.chat.completions.create(model="plait", messages=messages, response_format=loose)
        assert json.loads(other.choices[0].message.content) == {"city": "Lyon"}


def test_serve_streams_only_the_answer_that_fits(served: plait.Agent[Any]) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": Trip.model_json_schema()}}
    with serving(served) as here, openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0) as api:
        messages: Any = [{"role": "user", "content": QUESTION}]
        chunks = api.chat.completions.create(model="plait", messages=messages, response_format=schema, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert json.loads(text) == {"city": "Lyon", "days": 3}


def test_an_agent_with_an_output_type_refuses_another_response_format(served: plait.Agent[Any]) -> None:
    body: Any = {"messages": [{"role": "user", "content": QUESTION}], "response_format": {"type": "json_object"}}
    with (
        serving(served.using(output=Trip)) as here,
        openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0) as api,
        pytest.raises(openai.BadRequestError, match="The agent has an output type"),
    ):
        api.chat.completions.create(model="plait", **body)


def test_a_call_of_the_answers_tool_in_the_text_is_the_answer() -> None:
    run = agent("tool_calling", Trip, f'{{"name": "final_answer", "arguments": {GOOD}}}').run(QUESTION)
    assert run.output == Trip(city="Lyon", days=3), run.reason


class Options(BaseModel):
    verbose: bool = False


async def test_an_answer_without_arguments_is_an_empty_object() -> None:
    run, _ = await ask_with([completion("", "tool_calls", tool_calls=[answer_call({})])], WHOLE, output=Options)
    assert run.output == Options()


@for_each("form", ["```json\n{}\n```", "Here it is: {}", "{}"])
@for_each("loop", ["react", "compiler", "tool_calling", "phased", "rewoo"])
def test_fences_words_and_labels_inside_texts_do_not_break_an_answer(loop: str, form: str) -> None:
    answer = form.replace("{}", '{\n  "city": "Lyon",\n  "days": 3,\n  "note": "Action: go"\n}')
    run = agent(loop, Trip, answer).run(QUESTION)
    assert run.output == Trip(city="Lyon", days=3, note="Action: go"), run.reason


def test_json_describes_the_fields_of_the_answer_as_those_of_a_tool() -> None:
    run = agent("json", Trip, GOOD).run(QUESTION)
    rules = json.loads(run.timeline.model_calls[0].request)["messages"][0]["content"]
    assert '_input_: an object {"city": "string", "days": "integer", "note": "string (optional)"}' in rules


async def test_a_model_that_repeats_a_refused_answer_is_asked_at_a_higher_temperature() -> None:
    left = iter([BAD, BAD, GOOD])

    async def handler(asked: Asked) -> None:
        await asked.answer(200, completion(f"Thought: So.\nFinal Answer: {next(left)}"))

    async with Server(handler) as server:
        model = server.model(abilities=WHOLE, temperature=0.0)
        run = await plait.Agent("react", model=model, output=Trip, journal=False).arun(QUESTION)
        assert [asked.body["temperature"] for asked in server.asked] == [0.0, 0.0, 0.7]
    assert run.status == "answered"
