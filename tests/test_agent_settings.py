"""Settings of models on agents, phases, the command line and comparisons: which win, what is sent, what is recorded."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from chat_endpoint import Endpoint
from cli_support import Shell, action, final
from plait.cli.agent_options import make_agent
from plait.core.errors import ConfigError, PlaitError
from plait.journal.store import Journal
from plait.models.settings import ModelSettings, split_settings, write_settings

LOW, HIGH = ModelSettings(effort="low"), ModelSettings(effort="high")
TASKS = [{"id": "a", "question": "A?", "answer": "yes"}]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(final("yes")) as made:
        yield made


@pytest.fixture
def shell(tmp_path: Path, endpoint: Endpoint) -> Shell:
    made = Shell(tmp_path)
    (tmp_path / "plait.toml").write_text(f'[endpoints.fake]\nbase_url = "{endpoint.url}"\n')
    return made


@pytest.fixture
def config(tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration whose settings are the weakest."""
    path = tmp_path / "plait.toml"
    table = '[settings."fake:*"]\neffort = "minimal"\nseed = 1\ntop_p = 0.5\n'
    path.write_text(f'[endpoints.fake]\nbase_url = "{endpoint.url}"\n{table}')
    monkeypatch.setenv("PLAIT_CONFIG", str(path))
    return path


PLACES = ["name", "phase", "agent", "table", "endpoint params", "params", "loop"]
"""Places 3 to 8 of the list in docs/models.md. The next two tests have places 1 and 2."""


@pytest.mark.parametrize("first", PLACES)
def test_each_place_for_a_setting_wins_over_all_below_it(
    first: str, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = PLACES[PLACES.index(first) :]
    stop = {place: place.replace(" ", "-") for place in given}
    (tmp_path / "plait.toml").write_text(
        (f'params = {{ stop = ["{stop["params"]}"] }}\n' if "params" in stop else "")
        + f'[endpoints.fake]\nbase_url = "{endpoint.url}"\n'
        + (f'params = {{ stop = ["{stop["endpoint params"]}"] }}\n' if "endpoint params" in stop else "")
        + (f'[settings."fake:*"]\nstop = ["{stop["table"]}"]\n' if "table" in stop else "")
    )
    monkeypatch.setenv("PLAIT_CONFIG", str(tmp_path / "plait.toml"))
    settings = {
        **({"": ModelSettings(stop=(stop["agent"],))} if "agent" in stop else {}),
        **({"act": ModelSettings(stop=(stop["phase"],))} if "phase" in stop else {}),
    }
    model = "fake:m@stop=name" if "name" in stop else "fake:m"
    assert plait.Agent("react", model=model, settings=settings, journal=False).run("q").answer == "yes"
    (sent,) = endpoint.sent("stop")
    assert sent == ["\nObservation:"] if first == "loop" else sent == [stop[first]]


def test_a_fork_changes_what_the_name_sets_and_the_record_wins_over_all(
    shell: Shell, config: Path, endpoint: Endpoint
) -> None:
    words = ["--model", "fake:m@effort=low", "--approve", "always", "--tools", "calculator", "--loop", "react"]
    endpoint.replies = [action("calculator", {"expression": "1+1"}), final("yes"), final("yes")]
    asked = re.search(r"--question (\w+)", shell("run", "q", *words).err)
    assert asked is not None
    config.write_text(config.read_text().replace("seed = 1", "seed = 9"))
    assert shell("resume", "last", "--question", asked[1], "--answer", "yes").code == 0
    assert shell("fork", "last", "--at", "2", "--model-setting", "effort=high").code == 0
    assert (endpoint.sent("reasoning_effort"), endpoint.sent("seed")) == (["low", "low", "high"], [1, 1, 9])


def test_phases_have_settings_of_their_own(config: Path, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.replies = ["Plan: none.\n#E1 = LLM[1]", "one", "done"]
    settings = {"plan": HIGH, "": ModelSettings(effort="low")}
    run = plait.Agent("rewoo", model="fake:m", settings=settings, journal=tmp_path / "j.db").run("q")
    assert endpoint.sent("reasoning_effort") == ["high", "low", "low"]
    models = {row.phase: row.model for row in run.phases}
    assert models == {"plan": "fake:m@effort=high", "work": "fake:m@effort=low", "solve": "fake:m@effort=low"}


def test_a_model_object_gets_them_and_its_own_win(endpoint: Endpoint) -> None:
    model = endpoint.model(settings=ModelSettings(seed=5))
    agent = plait.Agent("react", model=model, settings=ModelSettings(seed=6, effort="low"), journal=False)
    agent.run("q")
    assert (endpoint.sent("seed"), endpoint.sent("reasoning_effort")) == ([5], ["low"])


def test_fallback_models_all_get_them(config: Path) -> None:
    agent = plait.Agent("react", model="fake:a|fake:b@effort=low", settings=HIGH, journal=False)
    assert agent._parts.models[""].spec == "fake:a@effort=high|fake:b@effort=low"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": plait.Scripted([final("yes")]), "settings": LOW}, "takes no settings"),
        ({"settings": {"plan": LOW}}, "has no phase 'plan'"),
        ({"settings": {"effort": "low"}}, "ModelSettings"),
        ({"settings": ModelSettings(effort=3)}, "effort"),  # type: ignore[arg-type]
        ({"settings": ModelSettings(thinking_tokens=9), "model": "fake:m"}, "no field for thinking_tokens"),
    ],
)
def test_settings_that_cannot_be_sent_are_errors_before_the_run(config: Path, fields: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plait.Agent("react", journal=False, **fields).run("q")


def test_they_are_shown_and_recorded_but_no_header_is(endpoint: Endpoint, tmp_path: Path) -> None:
    settings = ModelSettings(effort="low", extra_body={"user": "u"}, extra_headers={"X-Team": "hidden-value"})
    agent = plait.Agent("react", model=endpoint.model(), settings=settings, journal=tmp_path / "j.db")
    assert "effort='low'" in repr(agent)
    run = agent.run("q")
    assert (endpoint.headers[0]["X-Team"], endpoint.asked[0]["user"]) == ("hidden-value", "u")
    described = Journal(tmp_path / "j.db").head(run.id).models[""]
    assert described["settings"] == {"effort": "low", "extra_body": {"user": "u"}}
    assert described["headers"] == ["X-Team"]
    assert b"hidden-value" not in b"".join(path.read_bytes() for path in tmp_path.glob("j.db*"))


def test_a_resume_keeps_the_recorded_settings_and_a_replay_sees_changed_ones(
    config: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        return "sent"

    endpoint.replies = [action("send", {"text": "x"}), final("yes")]
    agent = plait.Agent(
        "react", model="fake:m", tools=[send], approve="always", settings=LOW, journal=tmp_path / "j.db"
    )
    run = agent.run("q")
    assert run.status == "waiting"
    config.write_text(config.read_text().replace("seed = 1", "seed = 9"))
    same = plait.Agent("react", model="fake:m", tools=[send], approve="always", settings=LOW, journal=tmp_path / "j.db")
    refused = same.using(settings=HIGH).resume(run, "yes")
    assert refused.status == "crashed" and len(endpoint.asked) == 1, refused.status
    assert "effort" in str(refused.reason)
    done = same.resume(run.id)
    assert done.status == "answered"
    assert (endpoint.sent("seed"), endpoint.sent("reasoning_effort")) == ([1, 1], ["low", "low"])
    assert agent.replay(run.id).whole  # it was made before plait.toml changed
    with pytest.raises(plait.ReplayDiffers, match='"seed":9'):
        same.replay(run.id)
    same.fork(run.id, at=1)
    assert endpoint.sent("seed")[-1] == 9  # a fork is a new run: it reads plait.toml again
    with pytest.raises(PlaitError, match="effort"):
        same.using(settings=HIGH).replay(run.id)


def test_settings_of_the_command_line(shell: Shell, endpoint: Endpoint) -> None:
    words = ["--model", "fake:m", "--model-setting", "temperature=0.2", "--model-setting", "act.effort=low"]
    more = ["--model-setting", "stop=A,B", "--model-setting", 'extra_body={"user": "a@b|c"}']
    done = shell("run", "q", "--loop", "react", *words, *more, "--json")
    assert done.object["answer"] == "yes"
    (sent,) = endpoint.asked
    assert (sent["temperature"], sent["reasoning_effort"], sent["stop"], sent["user"]) == (
        0.2,
        "low",
        ["A", "B"],
        "a@b|c",
    )
    assert "@temperature=0.2" in done.object["models"]["act"] and "@effort=low" in done.object["models"]["act"]
    again = shell("fork", "last", "--at", "1", "--model-setting", "effort=high", "--json")
    assert again.code == 0, again.err
    assert (endpoint.sent("reasoning_effort")[1], endpoint.sent("temperature")[1], endpoint.sent("user")[1]) == (
        "high",
        0.2,
        "a@b|c",
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [("effort", "write it as K=V"), ("efort=low", "no setting 'efort'"), ("plan.effort=low", "no phase 'plan'")],
)
def test_wrong_words_of_the_command_line(shell: Shell, word: str, said: str) -> None:
    done = shell("run", "q", "--model", "fake:m", "--model-setting", word)
    assert done.code == 2 and said in done.err


def test_run_defaults_of_plait_toml_belong_to_its_model(shell: Shell, endpoint: Endpoint) -> None:
    file = shell.folder / "plait.toml"
    table = '[run]\nmodel = "fake:m"\n[run.model_settings]\nseed = 4\nact = { effort = "low" }\n'
    file.write_text(f"{file.read_text()}{table}")
    assert shell("run", "q").code == 0
    assert shell("run", "q", "--model-setting", "seed=5").code == 0
    assert shell("run", "q", "--model", "fake:other").code == 0
    assert endpoint.sent("seed") == [4, 5, None]
    assert endpoint.sent("reasoning_effort") == ["low", "low", None]


def test_an_agent_of_a_server_keeps_the_settings_of_its_table(config: Path) -> None:
    agent = make_agent({}, {"model": "fake:m", "model_settings": {"seed": 4, "act.effort": "low"}}, {})
    assert agent.settings == {"": ModelSettings(seed=4), "act": LOW}
    with pytest.raises(ConfigError, match="no setting 'sed'"):
        make_agent({}, {"model_settings": {"sed": 4}})


def test_a_comparison_has_settings_as_an_axis(config: Path, endpoint: Endpoint, tmp_path: Path) -> None:
    axis = [LOW, {"act": HIGH}]
    done = plait.compare(
        TASKS, loops="react", models=["fake:m", endpoint.model()], settings=axis, journal=tmp_path / "j"
    )
    names = [row.who for row in done.rows]
    assert names == ["fake:m@effort=low", "fake:m@effort=high"]  # the object has the same spec as the word
    assert endpoint.sent("reasoning_effort") == ["low", "high"]
    again = plait.compare(TASKS, loops="react", models="fake:m@effort=low", journal=tmp_path / "j")
    assert len(endpoint.asked) == 2 and again.rows[0].n == 1  # the same cell, found again


def test_the_axis_of_the_command_line(shell: Shell, endpoint: Endpoint) -> None:
    (shell.folder / "tasks.jsonl").write_text(json.dumps(TASKS[0]))
    words = ["compare", "tasks.jsonl", "--loops", "react", "--models", "fake:m,fake:n@stop=A", "--quiet", "--csv"]
    done = shell(
        *words, "--model-setting", "effort=low,high", "--model-setting", "act.seed=1", "--model-setting", "stop=B,C"
    )
    assert done.code == 0, done.err
    sent = [(body["model"], body["reasoning_effort"], body["seed"], body["stop"]) for body in endpoint.asked]
    assert sorted(sent) == sorted(
        [(m, e, 1, stop) for m, stop in (("m", ["B", "C"]), ("n", ["A"])) for e in ("low", "high")]
    )
    assert "fake:n@seed=1@stop=A@effort=high" in done.out


def test_settings_are_written_as_they_are_read() -> None:
    settings = ModelSettings(
        temperature=0.5, stop=("A", "B"), parallel_calls=False, effort="low", extra_body={"a": {"b": "x@y=z|w"}}
    )
    assert split_settings(f"x:m{write_settings(settings)}") == ("x:m", settings)


@pytest.mark.parametrize(
    ("given", "said"), [("modle", "'modle'. Did you mean 'model'?"), ("zzzz", "'zzzz'. It has: approve, ")]
)
def test_an_unknown_argument_of_an_agent_is_a_type_error_with_the_nearest_one(given: str, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"Agent has no argument {said}")):
        plait.Agent(**{given: "x"})
    assert list(inspect.signature(plait.Agent).parameters)[:2] == ["loop", "model"]


def test_a_field_without_a_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'rewoo' without a name.*loop=\"rewoo\""):
        plait.Agent("react").using("rewoo")  # type: ignore[call-overload]


def test_the_name_of_a_file_is_no_text_of_instructions(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "plain.txt").write_text("Be brief.", "utf-8")
    model = shell.script([final("4")])
    words = ("run", "?", "--model", model, "--quiet", "--instructions")
    refused = shell(*words, "plain.txt")
    assert refused.code == 2 and "@plain.txt" in refused.err and refused.out == ""
    for fine in ("@plain.txt", "other.txt", "Be brief, as plain.txt is.", "x" * 5000, "a\nb"):
        assert shell(*words, fine).code == 0, fine
