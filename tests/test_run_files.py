"""Files that tools return come out of a run: in Python, on the command line, in the HTML file, from the server."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import plait
from cli_support import Shell, action, final
from plait.cli.show import show
from plait.core import Call
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.runtime.run_files import RunFile, save_files
from plait.toolkits import Image
from window_server import serving

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
FILES: dict[str, Any] = {
    "chart": Image(PNG, "image/png", 1, 1),
    "dot": plait.File("image/png", PNG, "dot.png"),
    "secret": plait.File("text/plain", b"secret", "secret.txt"),
    "svg": plait.File("image/svg+xml", SCRIPT, "chart.svg"),
    "page": plait.File("text/html", b"<script>alert(1)</script>", "../../etc/page.html"),
    "liar": plait.File("image/png", b"<script>alert(1)</script>", "liar.png"),
    "odd": plait.File("text/html\r\nSet-Cookie: a=b", b"x\0", "/etc/.bashrc"),
}


@plait.tool(read_only=True)
def draw(what: str) -> Any:
    """Draw something."""
    return FILES[what]


def make_agent(journal: Path, *what: str, **fields: Any) -> plait.Agent[Any]:
    script = [*(action("draw", {"what": each}) for each in what), final("Drawn.")]
    return plait.Agent("react", model=plait.Scripted(script), tools=[draw], journal=journal, **fields)


def test_a_run_has_the_files_that_its_tools_returned(journal: Path) -> None:
    run = make_agent(journal, "chart", "svg").run("Draw.")
    chart, svg = run.files
    assert (chart.name, chart.media_type, chart.data, chart.id) == ("image-1.png", "image/png", PNG, "image-1")
    assert (svg.name, svg.media_type, svg.data) == ("chart.svg", "image/svg+xml", SCRIPT)
    assert (chart.run, chart.tool, chart.call) == (run.id, "draw", "1.0") and svg.call == "3.0"
    assert chart.is_picture and not svg.is_picture
    assert make_agent(journal, "chart").run("Draw.").files[0].data == PNG
    assert plait.Agent("react", model=plait.Scripted([final("x")]), journal=False).run("?").files == ()


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_run_has_the_files_of_its_child_runs(journal: Path, has_journal: bool) -> None:
    helper = make_agent(journal, "chart").as_tool("helper", "Helps.")
    model = plait.Scripted([action("helper", {"question": "Draw."}), final("Drawn.")])
    run = plait.Agent("react", model=model, tools=[helper], journal=journal if has_journal else False).run("Draw.")
    (file,) = run.files
    assert file.run == run.children[0].id != run.id and file.data == PNG


def test_a_file_whose_result_was_withheld_stays_inside(journal: Path) -> None:
    class Withhold(plait.Hook):
        """Withholds results."""

        def after_tool(self, context: Any, call: Call, seen: Any) -> Any:
            return plait.Refuse("It is secret.")

    assert make_agent(journal, "chart", hooks=[Withhold()]).run("Draw.").files == ()


@pytest.mark.parametrize("named", ["image-1", "secret.txt", {"$thing": "file-1", "is": ""}])
@pytest.mark.parametrize("withheld", [True, False])
def test_a_withheld_file_cannot_be_passed_on_by_a_guess(journal: Path, named: Any, withheld: bool) -> None:
    sent: list[bytes] = []

    @plait.tool
    def send(file: plait.File | Image) -> str:
        """Send a file."""
        sent.append(file.data)
        return "sent"

    class Withhold(plait.Hook):
        """Withholds results."""

        def after_tool(self, context: Any, call: Call, seen: Any) -> Any:
            return plait.Refuse("It is secret.") if withheld and call.tool == "draw" else None

    what = "chart" if named == "image-1" else "secret"
    script = [action("draw", {"what": what}), action("send", {"file": named}), final("Sent.")]
    made = plait.Agent("react", model=plait.Scripted(script), tools=[draw, send], journal=journal, hooks=[Withhold()])
    run = made.using(approve="effects").run("Send it.")
    if run.status == "waiting":  # another process has the file from the record
        run = made.resume(run, "yes")
    assert run.answer == "Sent." and len(sent) == (not withheld)


def test_a_file_is_read_as_the_kind_that_a_tool_takes_and_a_text_stays_a_text(journal: Path) -> None:
    got: list[Any] = []

    @plait.tool(read_only=True)
    def take(image: Image, file: plait.File, data: bytes, title: str, more: list[plait.File] = []) -> str:  # noqa: B006
        """Take a picture in each form."""
        got.append((image.data, file.data, data, title, [each.data for each in more]))
        return "taken"

    given = {"image": "dot.png", "file": "image-1", "data": "dot.png", "title": "dot.png", "more": ["dot.png"]}
    script = [action("draw", {"what": what}) for what in ("chart", "dot")]
    script += [action("take", given), action("take", {**given, "image": "secret.txt"}), final("Drawn.")]
    run = plait.Agent("react", model=plait.Scripted(script), tools=[draw, take], journal=journal).run("Draw.")
    assert got == [(PNG, PNG, PNG, "dot.png", [PNG])] and run.status == "answered"
    call = next(call for call in run.timeline.tool_calls if call.call.tool == "take")
    assert call.call.input["image"] == {"$thing": "file-1", "is": "<File dot.png, image/png, 70 bytes>"}
    assert "the run has none with the id or name 'secret.txt'" in run.timeline.results[-1][1].text
    assert "b'" not in repr(run.files) and repr(run.files[1]) == "dot.png (image/png, 70 bytes)"


def test_names_and_types_are_safe_whatever_a_tool_says(journal: Path) -> None:
    page, liar, odd = make_agent(journal, "page", "liar", "odd").run("Draw.").files
    assert (page.name, page.media_type) == ("page.html", "text/html")
    assert liar.media_type == "application/octet-stream" and not liar.is_picture
    assert (odd.name, odd.media_type) == ("bashrc.bin", "application/octet-stream")


def make_file(name: str, data: bytes = b"new") -> RunFile:
    return RunFile(name, "text/plain", data, "r", "draw", "0.0", "file-1")


def test_saving_overwrites_nothing_and_follows_no_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "out" / "deep", tmp_path / "outside.txt"
    outside.write_text("old")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("old")
    (folder / "b.txt").symlink_to(outside)
    (folder / "c.txt").symlink_to(tmp_path / "nothing.txt")
    saved = save_files([make_file(each) for each in ("a.txt", "b.txt", "c.txt", "a.txt", "d")], folder)
    assert [each.name for each in saved] == ["a-2.txt", "b-2.txt", "c-2.txt", "a-3.txt", "d"]
    assert outside.read_text() == (folder / "a.txt").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["out", "outside.txt"]
    with pytest.raises(ConfigError, match="can't be saved"):
        save_files([make_file("a.txt")], outside)


def test_a_damaged_record_has_no_files(journal: Path) -> None:
    run = make_agent(journal, "chart").run("Draw.")
    rows = [msgspec.structs.replace(row, body=b"\xc1" if row.record.key == "1.0" else row.body) for row in run.trace]
    assert msgspec.structs.replace(run, rows=lambda: rows).files == ()


def test_show_names_and_saves_them(journal: Path, tmp_path: Path) -> None:
    run = make_agent(journal, "chart", "page").run("Draw.")
    done = CliRunner().invoke(show, [run.id, "--journal", str(journal), "--save-files", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert f"Files: image-1.png (image/png, {len(PNG)} bytes), page.html (text/html, 25 bytes)" in done.output
    assert sorted(os.listdir(tmp_path / "out")) == ["image-1.png", "page.html"]
    found = json.loads(CliRunner().invoke(show, [run.id, "--journal", str(journal), "--json"]).output)["files"]
    assert [(each["name"], each["size"], each["call"]) for each in found] == [
        ("image-1.png", len(PNG), "1.0"),
        ("page.html", 25, "3.0"),
    ]


def test_the_html_file_embeds_pictures_and_nothing_else(journal: Path) -> None:
    from plait.view.html_file import render_html

    run = make_agent(journal, "chart", "svg", "liar").run("Draw.")
    text = render_html(Journal(journal).run(run.id), Journal(journal))
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in text
    assert len(re.findall("data:[a-z/+]+;base64", text)) == 1 and "img-src data:;" in text
    assert "chart.svg" in text and base64.b64encode(SCRIPT).decode() not in text


def test_the_server_sends_them_so_that_no_browser_runs_them(journal: Path) -> None:
    with serving(make_agent(journal, "chart", "svg", "page", "liar")) as server:
        body = {"model": "plait", "messages": [{"role": "user", "content": "Draw."}]}
        told = server.ask("POST", "/v1/chat/completions", body)[2]
        files = told["choices"][0]["message"]["files"]
        assert told["choices"][0]["message"]["content"] == "Drawn."
        assert [each["name"] for each in files] == ["image-1.png", "chart.svg", "page.html", "liar.png"]
        for each in files:
            status, headers, got = server.ask("GET", each["url"])
            headers = {name.lower(): value for name, value in dict(headers).items()}
            assert got.encode(errors="surrogateescape") in {each.data for each in FILES.values()}
            assert status == 200 and "sandbox" in headers["content-security-policy"], headers
            assert headers["x-content-type-options"] == "nosniff"
            is_picture = each["name"] == "image-1.png"
            assert headers["content-type"] == ("image/png" if is_picture else "application/octet-stream")
            assert headers["content-disposition"].startswith("inline" if is_picture else "attachment")
        run = files[0]["run"]
        facts = server.ask("GET", f"/api/runs/{run}")[2]["run"]["files"]
        assert [each["id"] for each in facts] == ["image-1", "file-1", "file-2", "file-3"]
        assert server.ask("GET", f"/api/runs/{run}/files/file-9")[0] == 404


@pytest.mark.parametrize("streams", [False, True])
def test_a_chat_client_gets_files_as_the_parts_that_it_takes(
    journal: Path, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}}
    svg = {"filename": "chart.svg", "file_data": f"data:image/svg+xml;base64,{base64.b64encode(SCRIPT).decode()}"}
    agent = make_agent(journal, "chart", "svg", "liar")
    with serving(agent, tokens=("full-access-token-1",), clients=("client-token-1234567",)) as server:

        def ask(*modalities: str) -> tuple[Any, Any, Any]:
            body = {"model": "plait", "messages": [{"role": "user", "content": "Draw."}], "stream": streams}
            body |= {"modalities": modalities} if modalities else {}
            status, _, told = server.ask("POST", "/v1/chat/completions", body, token="client-token-1234567")
            assert status == 200, told
            if streams:
                chunks = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
                last = chunks[-1]["choices"][0]["delta"]
                said = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)
            else:
                last = told["choices"][0]["message"]
                said = last["content"]
            return said, last.get("images"), [each.get("file") for each in last["files"]]

        assert ask() == ask("text") == ("Drawn.", None, [None, None, None])
        assert ask("image", "text") == ("Drawn.", [picture], [None, None, None])
        said, images, (none, drawing, liar) = ask("text", "file")
        assert (said, images, none, drawing) == ("Drawn.", None, None, svg)
        assert liar["file_data"].startswith("data:application/octet-stream;base64,")  # never a picture
        monkeypatch.setattr("plait.server.chat_format.MAX_BYTES", len(PNG) + 30)
        _, images, (_, drawing, liar) = ask("image", "file")
        assert images == [picture] and drawing is None and liar is not None  # no room for the second


DRAWS = """
import plait

@plait.tool(read_only=True)
def draw() -> plait.File:
    "Draw something."
    return plait.File("text/csv", b"a,b", "../../table.csv")
"""


def test_the_command_line_saves_them(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (shell.folder / "draws.py").write_text(DRAWS)
    model = shell.script([action("draw", {}), final("Drawn.")])
    flags = ("--model", model, "--loop", "react", "--tools", "draws.py", "--save-files", "out")
    done = shell("run", "Draw.", *flags)
    assert done.code == 0 and done.out == "Drawn.\n" and "Saved: out/table.csv" in done.err
    assert (shell.folder / "out" / "table.csv").read_bytes() == b"a,b"
    assert "Saved: out/table-2.csv" in shell("run", "Draw.", *flags).err


def test_a_chat_saves_them_after_each_reply(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (shell.folder / "draws.py").write_text(DRAWS)
    replies = {"by_turn": False, "replies": [action("draw", {}), final("Drawn."), action("draw", {}), final("Again.")]}
    (shell.folder / "replies.json").write_text(json.dumps(replies))
    flags = ("--model", "scripted:replies.json", "--loop", "react", "--tools", "draws.py", "--save-files")
    done = shell("chat", *flags, "out", given="Draw.\nAgain.\n")
    assert (done.code, done.out) == (0, "Drawn.\nAgain.\n") and "Saved: out/table-2.csv" in done.err
    assert sorted(os.listdir(shell.folder / "out")) == ["table-2.csv", "table.csv"]
    done = shell("chat", *flags, "draws.py", given="Draw.\n")
    assert (done.code, done.out) == (2, "Drawn.\n") and "can't be saved" in done.err
