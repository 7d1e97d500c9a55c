"""The wheel holds all files, an error names the command that installs what is missing, and `plait doctor` reports."""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli_support import Shell
from plait import ConfigError, installation
from plait.cli.doctor import doctor
from plait.cli.run_output import LineView
from plait.models import stages

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    copy = tmp_path / "plait"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for folder in ("docs", "skills", "examples"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "constraints.txt"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    files = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/plait").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("plait/")}
        shared = {name.partition("/share/plait/")[2] for name in archive.namelist() if ".data/data/" in name}
    assert packed == files
    assert {"skills/plait/SKILL.md", "skills/plait/references/tools.md"} <= shared
    assert {"plait/py.typed", "plait/loops/react/README.md", "plait/loops/react/prompts/system.j2"} <= packed


class _Installed:
    """What pip wrote about Plait."""

    def __init__(
        self, record: dict[str, Any] | None, requires: list[str] | None = None, installer: str = "pip\n"
    ) -> None:
        self._record = record
        self.requires = requires
        self.installer = installer

    def read_text(self, name: str) -> str | None:
        if name == "INSTALLER":
            return self.installer
        assert name == "direct_url.json"
        return None if self._record is None else json.dumps(self._record)


@pytest.mark.parametrize(
    ("record", "command"),
    [
        (None, "pip install 'plait[code]'"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "pip install -e '/a b[code]'"),
        ({"url": "file:///src/plait", "dir_info": {}}, "pip install '/src/plait[code]'"),
        ({"url": f"file://{Path.cwd()}", "dir_info": {"editable": True}}, "pip install -e '.[code]'"),
        ({"url": "file:///p.whl", "archive_info": {}}, "pip install 'plait[code] @ file:///p.whl'"),
        (
            {"url": "file:///r", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'plait[code] @ git+file:///r'",
        ),
    ],
)
def test_the_command_fits_how_plait_was_installed(
    record: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: _Installed(record))
    assert installation.install_command("code") == command


@pytest.mark.parametrize(
    ("prefix", "installer", "command"),
    [
        ("/home/me/.venv", "pip", "pip install 'plait[code]'"),
        ("/home/me/.venv", "uv", "uv pip install 'plait[code]'"),
        ("/home/me/.local/share/uv/tools/plait", "uv", "uv tool install 'plait[code]'"),
        ("/home/me/.cache/uv/archive-v0/a1b2", "uv", "uvx --from 'plait[code]'"),
        ("/home/me/.local/share/pipx/venvs/plait", "pip", "pipx install --force 'plait[code]'"),
    ],
)
def test_the_command_changes_the_environment_of_its_installer(
    prefix: str, installer: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: _Installed(None, installer=installer))
    monkeypatch.setattr(sys, "prefix", prefix)
    assert installation.install_command("code") == command


def test_extras_are_those_of_the_package_with_what_they_miss() -> None:
    extras = {extra.name: extra.missing for extra in installation.list_extras()}
    assert list(extras) == [
        "local",
        "search",
        "code",
        "images",
        "pdf",
        "mcp",
        "otel",
        "server",
        "postgres",
        "websearch",
        "report",
    ]
    assert not any(extras.values())


def test_the_extra_all_has_every_extra_for_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (all_of_them,) = extras.pop("all")
    assert all_of_them == f"plait[{','.join(name for name in extras if name != 'dev')}]"


def test_a_missing_package_is_listed_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = [
        "click>=8",
        "x==1; sys_platform != 'linux'",
        'plait[odd]; extra == "all"',
        'no-such-thing[more]>=2; extra == "odd"',
        "msgspec>=0.1; extra == 'even'",
    ]
    distribution = metadata.distribution

    def find(name: str) -> Any:
        return _Installed(None, requires) if name == "plait" else distribution(name)

    monkeypatch.setattr(metadata, "distribution", find)
    assert installation.list_extras() == [
        installation.Extra("odd", ("no-such-thing",)),
        installation.Extra("even", ()),
    ]


def findings(plait: Shell, *args: str, code: int = 0, **env: str) -> dict[tuple[str, str], dict[str, str]]:
    """What the doctor found, by group and name."""
    done = plait("doctor", "--json", *args, env=env)
    assert done.code == code, done.out + done.err
    report = json.loads(done.out)
    assert report["usable"] == (code == 0)
    return {(each["group"], each["name"]): each for each in report["findings"]}


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_fresh_installation_is_usable(plait: Shell) -> None:
    found = findings(plait)
    assert found["extra", "search"]["state"] == "ok"
    assert found["config", "file"]["state"] == "absent"
    assert found["model", "local:smollm2-135m"]["state"] == "absent"  # HOME is an empty folder
    assert found["model", "local:smollm2-135m"]["fix"] == "plait models pull smollm2-135m"
    assert found["journal", str(plait.folder / "journal.db")]["state"] == "ok"
    assert "uses " in found["sandbox", "auto"]["detail"]
    table = plait("doctor")
    assert (table.code, table.out.splitlines()[-1]) == (0, "Usable.")


def test_without_a_model_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def resolve(*_: object) -> None:
        raise ConfigError("Local models need the package xllamacpp.", hint="pip install 'plait[local]'")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    monkeypatch.setattr("plait.cli.doctor.choose_model", lambda env: ("local", ""))
    monkeypatch.setattr("plait.cli.doctor.resolve", resolve)
    said = CliRunner().invoke(doctor, []).output.splitlines()[-1]
    assert said == "No model can be used yet. Local models need the package xllamacpp. pip install 'plait[local]'"
    report = CliRunner().invoke(doctor, ["--json"])
    assert json.loads(report.output)["usable"] is False and report.exit_code == 0


def test_a_key_is_named_and_never_printed(plait: Shell) -> None:
    env = {"OPENAI_API_KEY": "sk-very-secret-000111", "PLAIT_MODEL": "openai:gpt-5"}
    done = plait("doctor", env=env)
    assert done.code == 0 and "OPENAI_API_KEY is set" in done.out and "secret" not in done.out + done.err


def test_what_is_configured_and_does_not_work_is_broken(plait: Shell) -> None:
    (plait.folder / "journal.db").write_text("this is no database, and long enough to be read as one")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        found = findings(plait, code=1, PLAIT_MODEL="openai:gpt-5", OLLAMA_BASE_URL=address)
    broken = {key for key, each in found.items() if each["state"] == "broken"}
    journal = str(plait.folder / "journal.db")
    assert broken == {("model", "PLAIT_MODEL"), ("endpoint", "ollama"), ("journal", journal)}


def test_a_file_without_trust_is_broken_and_says_what_it_would_do(plait: Shell) -> None:
    plait.trusts_folder = False
    config = plait.folder / "plait.toml"
    config.write_text('[endpoints.far]\nbase_url = "https://models.invalid/v1"\nkey_env = "FAR_KEY"\n')
    found = findings(plait, code=1)["config", "file"]
    assert found["state"] == "broken" and "is not trusted" in found["detail"] and "plait trust" in found["fix"]
    config.write_text("[run]\nmax_steps = 3\n")
    assert "safe: it needs no trust" in findings(plait)["config", "file"]["detail"]


def test_a_damaged_model_file_is_broken(plait: Shell) -> None:
    cache = plait.folder / "models"
    cache.mkdir()
    (cache / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    found = findings(plait, code=1, PLAIT_CACHE=str(cache))
    assert "4 bytes" in found["model", "local:smollm2-135m"]["detail"]


class Models(BaseHTTPRequestHandler):
    """Answers the list of models at /v1/models, asks for a key at /locked, and knows nothing else."""

    def do_GET(self) -> None:
        assert "Authorization" not in self.headers
        self.send_response({"/v1/models": 200, "/locked/models": 401}.get(self.path, 404))
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "one"}, {"id": "two"}]}')

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_is_asked_for_its_models_without_a_key(plait: Shell) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}"
        env = {"VLLM_API_KEY": "a-key-that-stays-here", "OLLAMA_BASE_URL": f"{address}/locked"}
        found = findings(plait, code=1, VLLM_BASE_URL=f"{address}/v1", LMSTUDIO_BASE_URL=f"{address}/other", **env)
        server.shutdown()
    states = {name: found["endpoint", name] for name in ("vllm", "ollama", "lmstudio")}
    assert [each["state"] for each in states.values()] == ["ok", "ok", "broken"]
    assert states["vllm"]["detail"].endswith(": 2 models")


def test_stages_are_measured_and_shown() -> None:
    ended: list[stages.StageEnded] = []
    with stages.listen_to_stages(ended.append), stages.measure_stage("downloading model", "mine", 2_000_000) as stage:
        stage.done = 500_000
        mine, other = stages.Stage("local:mine@seed=1"), stages.Stage("local")
        assert stages.Stage("acme:big@version=2").now()[0] == "", "a model of the user's own may have any name"
        assert (mine.now()[0], mine.progress()) == ("downloading model", "25% of 2 MB")
        assert (other.now()[0], other.progress()) == ("reading prompt", "")
    with pytest.raises(OSError), stages.measure_stage("checking the hash", "mine"):
        raise OSError
    assert [(each.name, each.bytes) for each in ended] == [("downloading model", 2_000_000)]
    assert mine.progress() == ""
    out = io.StringIO()
    LineView(out)(stages.StageEnded("downloading model", 42.0, 1_117_320_768))
    assert out.getvalue() == "  (downloading model: 1,117 MB in 42.0 s)\n"
