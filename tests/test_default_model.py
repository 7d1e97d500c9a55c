"""Without `--model`: the embedded model if it is installed, else a provider whose key is set, else a server here."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import plait
from plait.cli.agent_options import make_agent
from plait.core.errors import ConfigError
from plait.models.default_model import ask_for_models, choose_model
from plait.models.presets import HOSTS

KEYS = [key for host in HOSTS.values() for key in host.keys]


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As after `pip install plait`: no package for local models, no key, no server."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setenv("PLAIT_JOURNAL", str(tmp_path / "journal.db"))
    for host in HOSTS.values():
        for variable in host.keys:
            monkeypatch.delenv(variable, raising=False)
        if host.local:
            monkeypatch.setenv(host.base_env, "http://127.0.0.1:9/v1")


class Ollama(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:8b"}]}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def ollama() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Ollama) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_the_embedded_model_is_used_where_it_is_installed() -> None:
    assert choose_model({"OPENAI_API_KEY": "sk-0123456789"}) == ("local", "")


@pytest.mark.usefixtures("no_extra")
def test_a_key_chooses_its_provider_and_a_server_is_found(ollama: str) -> None:
    closed = {host.base_env: "http://127.0.0.1:9/v1" for host in HOSTS.values() if host.local}
    assert choose_model({**closed, "OLLAMA_BASE_URL": ollama, "HF_TOKEN": "hf-0123456789"}) == (
        "ollama:qwen3:8b",
        f"{ollama} has it",
    )
    assert choose_model({"ANTHROPIC_API_KEY": "sk-0123456789"}) == (
        "anthropic:claude-haiku-4-5",
        "ANTHROPIC_API_KEY is set",
    )
    assert choose_model({"OPENAI_API_KEY": " ", "HF_TOKEN": "hf-0123456", "GEMINI_API_KEY": "0123456789"})[
        0
    ].startswith("gemini:")


ODD = {
    "another protocol": b"220 ready\r\n",
    "no page": b"",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
    "wrong chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "cut": b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"data',
    "deep": b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    "a page": b"HTTP/1.1 200 OK\r\n\r\n<html>",
    "other json": b'HTTP/1.1 200 OK\r\n\r\n{"data": [7, null]}',
    "no model": b'HTTP/1.1 200 OK\r\n\r\n{"data": [{"id": ""}, {"id": "a|openai:gpt-5"}]}',
}


@pytest.mark.usefixtures("no_extra")
def test_whatever_else_listens_on_the_port_of_a_model_server_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = {host.base_env: "http://127.0.0.1:9/v1" for host in HOSTS.values() if host.local}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        for case, data in ODD.items():
            thread = threading.Thread(target=answer_once, args=(server, data))
            thread.start()
            assert choose_model({**closed, "OLLAMA_BASE_URL": address}) == ("local", ""), case
            thread.join()
    for wrong in ("http://[::1", "http://127.0.0.1:x/v1", "127.0.0.1:11434", "ollama", "file:///etc"):
        assert ask_for_models(wrong)[0] is None, wrong
        assert choose_model({**closed, "OLLAMA_BASE_URL": wrong}) == ("local", ""), wrong


def answer_once(server: socket.socket, data: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(data)


@pytest.mark.usefixtures("no_extra")
def test_a_command_says_which_model_it_took(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert make_agent({}).model == "openai:gpt-4.1-mini"
    assert (
        capsys.readouterr().err == "Model: openai:gpt-4.1-mini, because OPENAI_API_KEY is set. --model names another.\n"
    )
    assert make_agent({"model": ("local",)}).model == make_agent({}, {"model": "local"}).model == "local"
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize(("name", "said"), [("local", "1,117 MB"), ("local:smollm2-135m", "98 MB")])
def test_without_a_model_nothing_is_downloaded_and_the_error_says_what_is_needed(name: str, said: str) -> None:
    agent = plait.Agent("react", model=name)
    with pytest.raises(ConfigError) as caught:
        agent.run("Hello?")
    assert "pip install" in caught.value.hint and "[local]" in caught.value.hint
    assert said in caught.value.hint and "OPENAI_API_KEY" in caught.value.hint and "Ollama" in caught.value.hint
    assert ("2 GB of memory" in caught.value.hint) == (name == "local")
