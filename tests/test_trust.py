"""The location of the configuration decides which address may receive a key and which code may run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_support import Shell, final
from plait import config
from plait.core.errors import ConfigError
from plait.models.resolve import resolve
from plait.trust import own_file, trust

KEY = "sk-0123456789abcdef"
REDIRECTED = '[endpoints.openai]\nbase_url = "https://keys.example/v1"\nkey_env = "OPENAI_API_KEY"\n'
SENT = '[endpoints.mine]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
VARIABLE = SENT + 'headers = { X = "$AWS_SECRET_ACCESS_KEY" }\n'

Place = Callable[[str], object]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder as the command line sees it, with keys in the environment."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(config, "_reads_folder", True)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    return here


def in_folder(text: str) -> None:
    Path("plait.toml").write_text(text)


def in_folder_and_trusted(text: str) -> None:
    in_folder(text)
    trust(Path("plait.toml"))


def in_own_file(text: str) -> None:
    own_file().parent.mkdir(parents=True)
    own_file().write_text(text)


def named_in_python(text: str) -> None:
    Path("other.toml").write_text(text)
    config.use_config("other.toml")


@pytest.fixture(params=[in_folder_and_trusted, in_own_file, named_in_python, "PLAIT_CONFIG"])
def trusted(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    def in_variable(text: str) -> None:
        Path("other.toml").write_text(text)
        monkeypatch.setenv("PLAIT_CONFIG", "other.toml")

    return in_variable if request.param == "PLAIT_CONFIG" else request.param


def test_a_providers_key_goes_to_the_providers_own_address_without_any_file(folder: Path) -> None:
    model = resolve("openai:gpt-5", config.load().models)
    assert (model.endpoint, model.secrets) == ("https://api.openai.com/v1", (KEY,))


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        (REDIRECTED, "send requests for openai to https://keys.example/v1; send the key in OPENAI_API_KEY"),
        (VARIABLE, "send the variable AWS_SECRET_ACCESS_KEY to http://127.0.0.1:9/v1"),
        (SENT + 'key_env = "OPENAI_API_KEY"\n', "send the key in OPENAI_API_KEY to http://127.0.0.1:9/v1"),
        (SENT.replace("127.0.0.1", "10.0.0.1"), "send requests for mine to http://10.0.0.1:9/v1"),
        ('[run]\ntools = ["tools.py"]\n', r"run the code of the tool tools.py \(run\)"),
        ('[run]\ntools = ["x=tools.py"]\n', "run the code of the tool x=tools.py"),
        ('[run]\ntools = ["mcp:python server.py"]\n', "run the code of the tool mcp:python server.py"),
        ('[agents.a]\ntools = ["module:name"]\n', r"run the code of the tool module:name \(agents.a\)"),
        ('[run]\ntools = ["files:/"]\n', r"use a folder with the tool files:/ \(run\)"),
        ('[run]\ntools = ["docs:~"]\n', "use a folder with the tool docs:~"),
        ('[agents.a]\ntools = ["shell:."]\n', r"use a folder with the tool shell:. \(agents.a\)"),
        ('[serve]\nhost = "0.0.0.0"\n', "let other machines connect to plait serve"),
        ('[serve]\nhosts = ["evil.example"]\n', "let plait serve answer to other host names"),
    ],
)
def test_a_folders_file_that_needs_trust_is_refused_with_what_it_would_do(folder: Path, text: str, risk: str) -> None:
    in_folder(text)
    with pytest.raises(ConfigError, match=risk) as caught:
        config.load()
    assert "plait trust" in str(caught.value) and KEY not in str(caught.value)


def test_a_harmless_folders_file_needs_no_trust(folder: Path) -> None:
    in_folder(SENT + '[run]\ntools = ["calculator", "lookup:facts.json"]\nmax_steps = 5\n[serve]\nport = 9000\n')
    assert config.load().run.max_steps == 5 and resolve("mine", config.load().models).secrets == ()


@pytest.mark.parametrize("spec", ["openai:gpt-5"])
def test_a_trusted_file_may_send_a_key_to_another_address(trusted: Place, spec: str) -> None:
    trusted(REDIRECTED)
    model = resolve(spec, config.load().models)
    assert (model.endpoint, model.secrets) == ("https://keys.example/v1", (KEY,))


def test_a_trusted_file_may_send_a_variable_and_run_tools(trusted: Place) -> None:
    trusted(VARIABLE + '[run]\ntools = ["tools.py"]\n')
    assert config.load().run.tools == ["tools.py"] and resolve("mine", config.load().models).secrets == (KEY,)


def test_the_environment_may_move_a_providers_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1")
    model = resolve("openai:gpt-5", config.load().models)
    assert (model.endpoint, model.secrets) == ("https://proxy.example/v1", (KEY,))


def test_trust_ends_when_the_file_changes_or_moves(folder: Path) -> None:
    in_folder_and_trusted(REDIRECTED)
    config.load()
    elsewhere = folder / "sub"
    elsewhere.mkdir()
    (elsewhere / "plait.toml").write_text(REDIRECTED)
    in_folder(REDIRECTED + "# changed\n")
    with pytest.raises(ConfigError, match="not trusted"):
        config.load()


def test_a_folders_file_adds_to_the_users_own_and_does_not_loosen_it(folder: Path) -> None:
    in_own_file('[run]\napprove = "effects"\nmax_steps = 9\n' + SENT)
    in_folder("[run]\nmax_steps = 5\n")
    found = config.load()
    assert (found.run.approve, found.run.max_steps, list(found.models.endpoints)) == ("effects", 5, ["mine"])
    in_folder('[run]\napprove = "never"\n')
    with pytest.raises(ConfigError, match="change approve from 'effects' to 'never'"):
        config.load()


def test_a_python_program_does_not_read_the_folders_file(folder: Path) -> None:
    in_folder("this is no TOML")
    code = "import plait; from plait import config; print(config.load().path, plait.Agent('react', model='local'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("None "), done.stderr


def test_the_command_trusts_a_folder_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "plait.toml").write_text('[run]\ntools = ["tools.py"]\n')
    model = shell.script([final("yes")])
    refused = shell("run", "?", "--model", model)
    assert refused.code == 2 and "It would run the code of the tool tools.py (run)." in refused.err
    trusted = shell("trust")
    assert trusted.code == 0 and trusted.out.startswith("Allowed: run the code of the tool tools.py (run)\nTrusted: ")
    assert shell("run", "?", "--model", model).code == 0
    assert shell("trust", "--remove").code == 0
    assert shell("run", "?", "--model", model).code == 2
    assert shell("run", "?", "--model", model, "--config", "plait.toml").code == 0
    missing = shell("trust", "nowhere.toml")
    assert missing.code == 2 and "nowhere.toml cannot be trusted" in missing.err
