"""The embedded model: a real file, a real llama.cpp, real HTTP; smollm2 because it is small."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from patience import patience
from plait.core import Think, system, think, user
from plait.core.errors import ConfigError, ContextOverflow, ModelMissing, PlaitError, ServerFailed
from plait.models import embedded, http
from plait.models.base import Response
from plait.models.config import ModelConfig
from plait.models.fetch import model_file
from plait.models.local import LocalModel, local_model
from plait.models.resolve import resolve

WEEK = Think("act", (user("Say the days of the week, one a line."),), max_tokens=24)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real file, fetched into the user's cache if it isn't there: 98 MB, once a machine."""
    return model_file("smollm2-135m")


@pytest.fixture
def model(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    """One server for all tests that change nothing about it."""
    monkeypatch.setenv("PLAIT_THREADS", "1")
    return local_model("smollm2-135m", {"n_ctx": 2048})


@pytest.fixture(autouse=True)
async def connections() -> AsyncIterator[None]:
    yield
    await http.close()


async def ask(model: LocalModel, think: Think) -> tuple[str, str]:
    reply = model.decode(await model.send(model.encode(think), think), think)
    return reply.text, reply.finish


async def test_a_chat_with_its_usage_and_streamed_text(model: LocalModel) -> None:
    pieces: list[str] = []
    response = await model.send(model.encode(WEEK), WEEK, pieces.append)
    reply = model.decode(response, WEEK)
    assert "Monday" in reply.text and reply.finish == "length"
    assert "".join(pieces) == reply.text and len(pieces) > 5
    assert reply.usage.input_tokens == 41 and reply.usage.output_tokens == 24 and not reply.usage.estimated
    again = model.decode(await model.send(model.encode(WEEK), WEEK), WEEK)
    assert again.usage.cached_tokens >= 40, "the server kept the prompt, and says so"


async def test_many_requests_one_after_another_all_arrive(model: LocalModel) -> None:
    """llama.cpp closes the connection behind a streamed reply, though it says that it keeps it."""
    think = structs.replace(WEEK, max_tokens=1)
    assert {(await ask(model, think))[1] for _ in range(20)} == {"length"}


async def test_the_same_request_gives_the_same_text_when_nothing_is_cached(smollm2: Path) -> None:
    model = local_model("smollm2-135m", {"n_ctx": 1024, "threads": 1, "cache_prompt": False})
    think = Think("act", (user("Tell me about sheep. " * 5),), max_tokens=10)
    first = await ask(model, think)
    await ask(model, WEEK)
    assert await ask(model, think) == first


async def test_a_stop_string_ends_the_reply_and_is_not_part_of_it(model: LocalModel) -> None:
    text, finish = await ask(model, structs.replace(WEEK, stop=("Wed",)))
    assert text.endswith("Tuesday, ") and finish == "stop"


async def test_a_grammar_is_kept_to(model: LocalModel) -> None:
    grammar = 'root ::= "Action: " ("lookup" | "calculator") "[" [0-9] "]"'
    text, finish = await ask(model, structs.replace(WEEK, grammar=grammar))
    assert finish == "stop" and text.startswith("Action: ") and text[-2].isdigit() and text.endswith("]")


async def test_a_schema_is_kept_to(model: LocalModel) -> None:
    schema = {
        "type": "object",
        "properties": {"tool": {"enum": ["lookup"]}},
        "required": ["tool"],
        "additionalProperties": False,
    }
    text, _ = await ask(model, structs.replace(WEEK, schema=schema))
    assert "".join(text.split()) == '{"tool":"lookup"}'


async def test_a_prefilled_reply_is_gone_on_with_and_not_repeated(model: LocalModel) -> None:
    think = structs.replace(WEEK, prefill="Thought: I say", grammar='root ::= " yes" | " no"')
    reply = model.decode(await model.send(model.encode(think), think), think)
    assert reply.text in (" yes", " no")
    assert reply.usage.input_tokens == 41 + 5, "the prefill is the end of the prompt, five tokens of it"


async def test_a_raw_completion_goes_on_behind_the_prompt(model: LocalModel) -> None:
    think = Think("act", prompt="Monday, Tuesday, Wednesday,", prefill=" Thursday,", stop=(" Sunday",), max_tokens=12)
    assert model.encode(think).path == "completions"
    text, finish = await ask(model, think)
    assert text == " Friday, Saturday," and finish == "stop"


async def test_a_prompt_that_does_not_fit_is_told_with_its_numbers(model: LocalModel) -> None:
    long = Think("act", (user("sheep " * 4000),))
    with pytest.raises(ContextOverflow) as caught:
        await model.send(model.encode(long), long)
    assert caught.value.tokens > 4000 and caught.value.room == 2048


async def test_a_cancelled_request_frees_the_one_slot(model: LocalModel) -> None:
    await ask(model, WEEK)
    # The grammar keeps the model writing for longer than anybody waits.
    endless = structs.replace(WEEK, max_tokens=1900, grammar='root ::= ("la ")+ "."')
    begun = asyncio.Event()
    task = asyncio.create_task(model.send(model.encode(endless), endless, lambda _: begun.set()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    started = time.monotonic()
    await ask(model, structs.replace(WEEK, max_tokens=2))
    assert time.monotonic() - started < patience(5)


async def test_loading_does_not_hold_up_the_event_loop_and_two_loops_share_a_server(smollm2: Path) -> None:
    model = local_model("smollm2-135m", {"n_ctx": 512, "threads": 1})
    longest = 0.0
    texts: list[str] = []

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    async def other() -> None:
        texts.append((await ask(model, WEEK))[0])

    beating = asyncio.create_task(beat())
    thread = threading.Thread(target=lambda: asyncio.run(other()))
    thread.start()
    texts.append((await ask(model, WEEK))[0])
    await asyncio.to_thread(thread.join)
    beating.cancel()
    assert len(texts) == 2 and all("Monday" in text for text in texts)
    assert longest < patience(0.25)
    assert len([key for key in embedded._servers if key[1].n_ctx == 512]) == 1


async def test_a_server_that_dies_is_named_and_started_again(smollm2: Path) -> None:
    model = local_model("smollm2-135m", {"n_ctx": 768, "threads": 1})
    process = None

    def kill(_: str) -> None:
        nonlocal process
        process = embedded._servers["smollm2-135m", model.server].process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(ServerFailed, match=r"smollm2-135m ended \(signal 9\)") as caught:
        await model.send(model.encode(WEEK), WEEK, kill)
    assert caught.value.retry
    assert "Monday" in (await ask(model, WEEK))[0]


async def test_threads_that_wait_sleep_soon_unless_the_user_says_otherwise(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n_ctx, said, expected in ((520, None, "500"), (528, "7", "7")):
        if said:
            monkeypatch.setenv("GOMP_SPINCOUNT", said)
        else:
            monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
        model = local_model("smollm2-135m", {"n_ctx": n_ctx, "threads": 2})
        await ask(model, WEEK)
        process = embedded._servers["smollm2-135m", model.server].process
        assert process is not None
        started_with = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        assert [line for line in started_with if line.startswith(b"GOMP_SPIN")] == [
            f"GOMP_SPINCOUNT={expected}".encode()
        ]


# --- without a server ---------------------------------------------------------------------------------


def test_a_request_is_made_without_file_server_or_package() -> None:
    code = (
        "import sys, plait.models.local as l; from plait.core import Think, user;"
        "m = l.local_model('/nowhere/at/all.gguf');"
        "print(m.encode(Think('act', (user('hi'),))).body.decode());"
        "print([x for x in ('xllamacpp', 'aiohttp', 'rich', 'huggingface_hub') if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    body, loaded = done.stdout.splitlines()
    assert '"model":"all.gguf"' in body and '"content":"hi"' in body and loaded == "[]"


@pytest.mark.parametrize(
    ("tokens", "limit", "finish"), [(4096, None, "full"), (4000, None, "length"), (4096, 4096, "length")]
)
def test_a_reply_that_ends_at_the_longest_one_is_not_continued(tokens: int, limit: int | None, finish: str) -> None:
    """4,096 tokens, however many requests: where the context or the request's own limit is smaller, it is continued."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "and so on"}, "finish_reason": "length"}
    usage = {"prompt_tokens": 9, "completion_tokens": tokens}
    body = msgspec.json.encode({"choices": [choice], "usage": usage})
    asked = Think("act", (user("Go on."),), max_tokens=limit)
    reply = local_model().decode(Response(200, body), asked)
    assert reply.finish == finish and reply.how_cut
    loop = think("act", asked.messages, max_tokens=limit)
    assert next(loop) == asked
    if finish == "length":
        assert loop.send(reply) == structs.replace(asked, prefill="and so on", repair=True)  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(StopIteration) as done:
            loop.send(reply)
        assert done.value.value == reply


def test_a_setting_raises_the_longest_reply() -> None:
    assert local_model().server.n_predict == 4096
    assert local_model("", {"n_predict": 9000}).server.n_predict == 9000


def test_names_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAIT_THREADS", raising=False)
    assert (local_model().spec, local_model().name) == ("local", "qwen2.5-coder-1.5b")
    named = local_model("smollm2-135m", {"n_ctx": 4096, "slots": 2, "threads": 1})
    assert (named.spec, named.server.n_ctx, named.server.slots) == ("local:smollm2-135m", 4096, 2)
    assert named.describe()["sha256"].startswith("b179c952") and named.describe()["endpoint"] == ""
    monkeypatch.setenv("PLAIT_THREADS", "3")
    assert local_model("", {"threads": 1}).server.threads == 3


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("qwen", {}, "no local model called 'qwen'"),
        ("", {"ctx": 1}, "local.ctx is not a setting"),
        ("", {"n_ctx": "big"}, "n_ctx"),
        ("", {"slots": 0}, "local.slots should be 1 or more"),
    ],
)
def test_a_wrong_name_or_setting_is_said(name: str, config: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        local_model(name, config)


def test_wrong_threads_in_the_environment_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_THREADS", "many")
    with pytest.raises(ConfigError, match="PLAIT_THREADS"):
        local_model()


def test_electricity_makes_the_rate() -> None:
    usage = structs.replace(__import__("plait").core.Usage(), input_tokens=1500, output_tokens=500)
    assert local_model().rate.cost(usage) == 0.0 and "not counted" in local_model().rate.source
    for price, cost in (({"per_1k_tokens": 0.002}, 0.004), ({"watts": 90, "tariff": 0.4}, 0.001)):
        config = ModelConfig.from_mapping({"electricity": price})
        assert resolve("local", config).rate.cost(usage, seconds=100) == cost


def bad_files(folder: Path, whole: Path) -> dict[str, tuple[Path, str]]:
    """Files that are not a model, each with what should be said of it."""
    with whole.open("rb") as file:
        start = file.read(5_000_000)
    made = {
        "empty": (b"", "is empty"),
        "text": (b"<html>not found</html>", "not a GGUF file"),
        "header": (b"GGUF\x03\0\0\0", "can't be loaded"),
        "junk": (b"GGUF" + bytes(range(256)) * 40, "can't be loaded: .*version"),
        "torn": (start, "can't be loaded: .*corrupted or incomplete"),
    }
    for name, (data, _) in made.items():
        (folder / f"{name}.gguf").write_bytes(data)
    (folder / "folder.gguf").mkdir()
    return {
        **{name: (folder / f"{name}.gguf", said) for name, (_, said) in made.items()},
        "folder": (folder / "folder.gguf", "can't be read: Is a directory"),
        "absent": (folder / "absent.gguf", "There is no model file"),
    }


async def test_a_file_that_is_no_model_is_a_clear_error(smollm2: Path, tmp_path: Path) -> None:
    think = Think("act", (system("x"), user("y")))
    for name, (path, said) in bad_files(tmp_path, smollm2).items():
        model = local_model(str(path))
        with pytest.raises(ModelMissing, match=said) as caught:
            await model.send(model.encode(think), think)
        assert str(path) in str(caught.value) and caught.value.hint, name


async def test_without_xllamacpp_the_extra_is_named(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = local_model(str(smollm2))
    with pytest.raises(PlaitError, match=r"pip install .*\[local\]"):
        await model.send(model.encode(WEEK), WEEK)


# --- the end ------------------------------------------------------------------------------------------

ASKER = """
import asyncio, sys
from plait.core import Think, user
from plait.models import embedded
from plait.models.local import local_model
model = local_model("smollm2-135m", {"n_ctx": 2048, "threads": 1})
think = Think("act", (user("sing"),), max_tokens=1900, grammar='root ::= ("la ")+ "."')
def first(_):
    if not said:
        said.append(1)
        print(next(iter(embedded._servers.values())).process.pid, flush=True)
said = []
try:
    asyncio.run(model.send(model.encode(think), think, first))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def gone(pid: int) -> bool:
    """The process ends within five seconds."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":  # ended; whoever inherited it has yet to take note
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_we_end_the_server_ends_too_and_nothing_is_printed(smollm2: Path, how: signal.Signals) -> None:
    asker = subprocess.Popen([sys.executable, "-c", ASKER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert asker.stdout
    server = int(asker.stdout.readline())
    started = time.monotonic()
    asker.send_signal(how)
    out, err = asker.communicate(timeout=20)
    assert time.monotonic() - started < patience(5)
    assert gone(server) and err == ""
    assert out == ("interrupted\n" if how is signal.SIGINT else "")


def test_ctrl_c_while_a_model_loads_ends_at_once(smollm2: Path) -> None:
    """The loading thread must not hold up the end of the process."""
    slow = ASKER.replace(
        "asyncio.run(", "embedded.check_gguf = lambda path: __import__('time').sleep(60)\n    asyncio.run("
    )
    slow = slow.replace("said = []", "said = []; print('asking', flush=True)")
    asker = subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert asker.stdout
    asker.stdout.readline()
    time.sleep(0.5)
    started = time.monotonic()
    asker.send_signal(signal.SIGINT)
    out, err = asker.communicate(timeout=20)
    assert time.monotonic() - started < patience(5) and out == "interrupted\n" and err == ""
