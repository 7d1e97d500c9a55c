"""Files by the command line, the chat, the chat-completions endpoint and the viewer."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import plait
from chat_support import Terminal
from cli_support import Shell
from media_servers import MediaEndpoint, digest, png
from models_server import Server
from plait.core import Think
from plait.models.base import Abilities
from plait.models.scripted import Scripted
from window_server import serving

PHOTO = plait.File.from_bytes(png(), "photo.png")


@contextmanager
def served(endpoint: MediaEndpoint) -> Iterator[str]:
    """The address of an endpoint, in a thread of its own."""
    loop, address = asyncio.new_event_loop(), []
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with Server(endpoint) as server:
            address.append(server.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def configure(shell: Shell, url: str, abilities: str = "images = true, files = true") -> None:
    table = f'[endpoints.mine]\nbase_url = "{url}"\nmodel = "m"\nabilities = {{ stream = false, {abilities} }}\n'
    (shell.folder / "plait.toml").write_text(table)
    (shell.folder / "photo.png").write_bytes(png())
    (shell.folder / "notes.md").write_text("The cat is called Tom.")


def test_plait_run_attaches_files_and_plait_show_names_them(shell: Shell) -> None:
    endpoint = MediaEndpoint("chat", "Final Answer: Tom")
    with served(endpoint) as url:
        configure(shell, url)
        words = ("--loop", "react", "--model", "mine", "--attach", "photo.png", "--attach", "notes.md")
        done = shell("run", "Who is this?", *words)
    assert (done.code, done.out) == (0, "Tom\n")
    assert endpoint.seen == [[("user", "image/png", digest(png()))]]
    assert b'<file name=\\"notes.md\\">\\nThe cat is called Tom.' in endpoint.bodies[0]
    shown = shell("show", "last").out
    assert f"Attached: photo.png (image/png, {len(png())} bytes), notes.md (text/plain, 22 bytes)" in shown
    (entry, _) = json.loads(shell("show", "last", "--json").out)["attachments"]
    assert entry["digest"] == digest(png())
    assert json.loads(shell("export", "last").out.splitlines()[1])["type"] == "content"


def test_a_model_without_images_is_a_usage_error_of_the_command(shell: Shell) -> None:
    configure(shell, "http://127.0.0.1:1/v1", "images = false")
    done = shell("run", "Who is this?", "--loop", "react", "--model", "mine", "--attach", "photo.png")
    assert done.code == 2 and "mine does not accept images, and photo.png (image/png" in done.err
    missing = shell("run", "Who?", "--model", "mine", "--attach", "nowhere.png")
    assert missing.code == 2 and "nowhere.png can't be attached: No such file" in missing.err


def test_a_chat_attaches_files_to_the_next_question_only(shell: Shell) -> None:
    endpoint = MediaEndpoint("chat", "Final Answer: a cat", "Final Answer: Tom")
    with served(endpoint) as url:
        configure(shell, url)
        at = Terminal(shell, "--loop", "react", "--model", "mine", "--session", "pets")
        at.until("Ctrl-D ends the chat")
        at.type("/attach photo.png\n")
        at.until("With the next question: photo.png (image/png")
        at.type("What is it?\n")
        at.until("a cat")
        at.type("And its name?\n")
        at.until("Tom")
        at.type("/quit\n")
        assert at.close() == 0
    assert endpoint.seen == [[("user", "image/png", digest(png()))]] * 2  # the later turn sees it too
    assert b"(attached: photo.png)" in endpoint.bodies[1]


def image_part(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{media_type};base64,{base64.b64encode(data).decode()}", "detail": "low"},
    }


def test_the_endpoint_takes_images_and_files_as_content_parts(tmp_path: Path) -> None:
    seen: list[Think] = []

    def reply(think: Think) -> str:
        seen.append(think)
        return f"Final Answer: answer {len(seen)}"

    model = Scripted([reply] * 4, by_turn=False, abilities=Abilities(images=True, files=True))
    pdf = {
        "filename": "report.pdf",
        "file_data": f"data:application/pdf;base64,{base64.b64encode(b'%PDF-1.4').decode()}",
    }
    content = [{"type": "text", "text": "What is it?"}, image_part(png()), {"type": "file", "file": pdf}]
    with serving(plait.Agent("react", model=model, journal=tmp_path / "j.db")) as here:
        first = {"model": "plait", "messages": [{"role": "user", "content": content}]}
        status, headers, found = here.ask("POST", "/v1/chat/completions", first)
        assert (status, found["choices"][0]["message"]["content"]) == (200, "answer 1")
        later = [*first["messages"], {"role": "assistant", "content": "answer 1"}, {"role": "user", "content": "Why?"}]
        status, again, found = here.ask("POST", "/v1/chat/completions", {"model": "plait", "messages": later})
        assert (status, again["x-plait-session"]) == (200, headers["x-plait-session"])
        other = [{"role": "user", "content": [content[0], image_part(png(9))]}, *later[1:]]
        status, another, _ = here.ask("POST", "/v1/chat/completions", {"model": "plait", "messages": other})
        assert status == 200 and another["x-plait-session"] != headers["x-plait-session"]
        status, _, facts = here.ask("GET", f"/api/runs/{headers['x-plait-run']}")
        assert facts["run"]["attachments"][0].startswith("image (image/png")
        status, _, exchanges = here.ask("GET", f"/api/runs/{headers['x-plait-run']}/wire?step=1")
        seq = exchanges["exchanges"][0]["seq"]
        status, _, body = here.ask("GET", f"/api/runs/{headers['x-plait-run']}/wire/{seq}")
        assert status == 200 and base64.b64encode(png()).decode() in body
    assert [each.media_type for each in seen[0].messages[-1].attachments] == ["image/png", "application/pdf"]
    sent = [file.media_type for each in seen[1].messages for file in each.attachments]
    assert sent == ["image/png", "application/pdf"]  # a later turn gets them too
    assert "What is it?\n(attached: image, report.pdf)" in "\n".join(each.content for each in seen[1].messages)


def test_an_image_without_words_is_a_question_and_its_conversation_continues(tmp_path: Path) -> None:
    model = Scripted(
        [f"Final Answer: answer {n}" for n in range(1, 5)], by_turn=False, abilities=Abilities(images=True)
    )
    picture = {"role": "user", "content": [{"type": "text", "text": ""}, image_part(png())]}
    with serving(plait.Agent("react", model=model, journal=tmp_path / "j.db")) as here:

        def ask(*messages: dict[str, Any], **more: Any) -> tuple[str, str]:
            status, headers, found = here.ask(
                "POST", "/v1/chat/completions", {"model": "plait", "messages": messages, **more}
            )
            assert status == 200, found
            return found["choices"][0]["message"]["content"], headers["x-plait-session"]

        answer, session = ask(picture)
        assert answer == "answer 1"
        why = {"role": "user", "content": "Why?"}
        assert ask(picture, {"role": "assistant", "content": answer}, why) == ("answer 2", session)
        assert ask(picture, session="pets") == ("answer 3", "pets")
        assert ask(why, session="pets") == ("answer 4", "pets")
        last, *_ = here.manager.journal.runs()
        request = here.manager.journal.timeline(last.head.run).model_calls[0].request.decode()
    assert "(no text)\\n(attached: image)" in request


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}, "is no data URL"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}, "is not valid base64"),
        ({"type": "image_url"}, "is no data URL"),
        (image_part(b"\x00\x01\x02\xff"), "no model accepts such a file"),
        (image_part(png()), "does not accept images"),
        ({"type": "input_audio", "input_audio": {}}, "Agents take text, images and files"),
    ],
)
def test_the_endpoint_refuses_other_parts_with_a_clear_error(part: dict[str, Any], words: str, tmp_path: Path) -> None:
    with serving(plait.Agent("react", model=Scripted(["Final Answer: x"]), journal=tmp_path / "j.db")) as here:
        content = [{"type": "text", "text": "What is it?"}, part]
        asked = {"model": "plait", "messages": [{"role": "user", "content": content}]}
        status, _, found = here.ask("POST", "/v1/chat/completions", asked)
    assert status == 400 and words in found["error"]["message"], found
