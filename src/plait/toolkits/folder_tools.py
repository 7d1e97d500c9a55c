"""Tools over one folder of the user: `files` lists, reads, searches and writes its files. `shell` runs commands, each
confined by the kernel to the folder, after approval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from plait.core.errors import ToolError
from plait.core.text import cut_text, decode_text, find_encoding
from plait.sandbox.command import check_folder
from plait.sandbox.command import run_command as run_confined
from plait.toolkits.folder import SECONDS, Folder, show_lines
from plait.tools.render import replace_surrogates
from plait.tools.tool import Tool, tool

LISTED, HITS, LINES = 500, 100, 400
"""Maximum number of files in a list, of hits of a search, and of lines that are shown without a wish."""
WIDE = 200
"""Maximum number of characters of a hit's line."""
READ_ONLY = ",read_only"

USUAL_SECONDS, MOST_SECONDS = 60, 600
"""Time limit of a command: the usual one, and the longest that a call can ask for."""
MAX_COMMAND = 20_000
"""Maximum number of characters of a command."""


def files(folder: str | Path, *, read_only: bool = False) -> tuple[Tool, ...]:
    """Makes the tools `list_files`, `read_file`, `search_files`, `write_file` and `edit_file` for one folder.

    With `read_only`, or in the word `files:FOLDER,read_only`, only the first three. Paths are relative to the folder.
    Hidden files, symbolic links and special files are not offered. Each write needs approval.
    """
    if isinstance(folder, str) and folder.endswith(READ_ONLY):
        folder, read_only = folder.removesuffix(READ_ONLY), True
    place = Folder.open(folder, "files")

    @tool(read_only=True, open_world=True, timeout=2 * SECONDS)
    def list_files(pattern: str = "**") -> str:
        """Lists the files of the folder, each with its size.

        Args:
            pattern: Which files: a name or path with * for any text and **/ for any folders; all without it.
        """
        lines: list[str] = []
        for found in place.walk(pattern):
            if len(lines) == LISTED:
                lines.append(f"[There are more than {LISTED} files. Use a narrower pattern.]")
                break
            lines.append(f"{found.path} ({found.size:,} bytes)")
        return "\n".join(lines) or f"No file fits {cut_text(pattern, 80)!r}."

    @tool(read_only=True, open_world=True)
    def read_file(path: str, first_line: int = 1, lines: int = LINES) -> str:
        """Shows the text of a file, or a part of it.

        Args:
            path: The file's path in the folder.
            first_line: The number of the first line, from 1.
            lines: How many lines.
        """
        return show_lines(path, place.read_text(path), max(first_line, 1), max(lines, 1))

    @tool(read_only=True, open_world=True, timeout=2 * SECONDS)
    def search_files(text: str, pattern: str = "**", regex: bool = False) -> str:
        """Searches the files of the folder for a text, line by line: path, number of the line, the line.

        Args:
            text: The text, in this case; or a regular expression without look-around.
            pattern: Which files, as in list_files; all without it.
            regex: Whether the text is a regular expression.
        """
        matches = _matcher(text, regex)
        hits: list[str] = []
        skipped: list[str] = []
        for found in place.walk(pattern):
            try:
                content = decode_text(place.read_bytes(found.path))
            except ToolError:  # too large, or it has just changed
                content = None
            skipped += [found.path] if content is None else []
            for number, line in enumerate((content or "").splitlines(), 1):
                if matches(line):
                    hits.append(f"{found.path}:{number}: {cut_text(line.strip(), WIDE)}")
                    if len(hits) == HITS:
                        return "\n".join([*hits, f"[The search ended after {HITS} lines. Use a narrower pattern.]"])
        named = f"{', '.join(skipped[:5])}{', ...' if len(skipped) > 5 else ''}"
        note = [f"[{len(skipped):,} not searched, because not text or too large: {named}.]"] if skipped else []
        return "\n".join([*hits, *note] if hits else [f"No line has {cut_text(text, 80)!r}.", *note])

    @tool(destructive=True, requires_approval=True)
    def write_file(path: str, content: str) -> str:
        """Writes a text file: a new one, or the whole content of an existing one.

        Args:
            path: The file's path in the folder. Folders that do not exist are made.
            content: All of its text.
        """
        place.write(path, content, replaces=False)
        return f"{path} has been written: {len(content):,} characters."

    @tool(destructive=True, requires_approval=True)
    def edit_file(path: str, old: str, new: str) -> str:
        """Replaces a text in a file. The text must occur exactly once.

        Args:
            path: The file's path in the folder.
            old: The text to replace, with the lines around it if it would occur more often.
            new: What takes its place.
        """
        if not old:
            raise ToolError("`old` is empty.", hint="Give the text to replace. To write a whole file, use write_file.")
        content, data = place.read_text(path), place.read_bytes(path)
        encoding = find_encoding(data)
        if content.encode(encoding, "replace") != data:  # a damaged text, or the file has just changed
            raise ToolError(f"{path} has bytes that are not {encoding}.", hint="Write the whole file with write_file.")
        if "\r\n" in content and "\r\n" not in old:  # a model writes the line ends of this file as \n
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        at = content.find(old)
        if at < 0:
            raise ToolError(f"{path} does not have the text to replace.", hint="Read the file, and copy it exactly.")
        if content.find(old, at + 1) >= 0:
            hint = "Add lines before or after it to `old`."
            raise ToolError(f"{path} has the text to replace more than once.", hint=hint)
        place.write(path, content[:at] + new + content[at + len(old) :], replaces=True, encoding=encoding)
        first = content.count("\n", 0, at) + 1
        return f"{path} has been changed at line {first}."

    reading = (list_files, read_file, search_files)
    return reading if read_only else (*reading, write_file, edit_file)


def _matcher(text: str, regex: bool) -> Callable[[str], bool]:
    """Return whether a line has the text. A regular expression takes linear time, whatever it is."""
    if not text:
        raise ToolError("There is nothing to search for.", hint="Give a text.")
    if not regex:
        return lambda line: text in line
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        schema = core_schema.str_schema(pattern=text[:1000], regex_engine="rust-regex")
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        said = " ".join(str(error).rpartition("error: ")[2].split())[:200]
        raise ToolError(f"The regular expression can't be used: {said}.", hint="Write it in another way.") from None


def shell(folder: str | Path, *, readable: Sequence[str | Path] = ()) -> tuple[Tool, ...]:
    """Makes the tool `run_command`, whose commands see nothing of the machine but the folder and its programs.

    A command reads and writes the folder, reads system folders and those in `readable`, and has no network. In a word:
    `shell:FOLDER,readable=FOLDER`, such as a folder of skills. Each call needs approval. Raises `ConfigError` if this
    machine cannot confine a command (see `plait doctor`).
    """
    if isinstance(folder, str) and not Path(folder).expanduser().is_dir():
        folder, *more = folder.split(",readable=")
        readable = (*readable, *more)
    place, *others = (Folder.open(each, "shell") for each in (folder, *readable))
    also = tuple(str(each.root) for each in others)
    check_folder(place.root, also)

    @tool(requires_approval=True, destructive=True, open_world=True, timeout=MOST_SECONDS + 60)
    async def run_command(command: str, seconds: int = USUAL_SECONDS) -> str:
        """Runs a shell command in the folder. It can change files in it, and has no network.

        When it ends, all processes that it started end too. Files in /tmp are then gone.

        Args:
            command: One or several lines for /bin/sh.
            seconds: Its time limit, at most 600.
        """
        if not 1 <= seconds <= MOST_SECONDS:
            raise ToolError(f"A command can't have {seconds} seconds.", hint=f"Give 1 to {MOST_SECONDS}.")
        is_text = "\0" not in command and replace_surrogates(command) == command
        if not command.strip() or len(command) > MAX_COMMAND or not is_text:
            raise ToolError(f"This is not a command of 1 to {MAX_COMMAND:,} characters.", hint="Write plain text.")
        inodes = tuple(each.check().st_ino for each in (place, *others))
        ended = await run_confined(place.root, command, seconds, also, inodes)
        said = f"exit code {ended.code}" if ended.code is not None else f"stopped after its {seconds} seconds"
        streams = [("stdout", ended.stdout), ("stderr", ended.stderr)]
        return "\n".join([said, *(f"{name}:\n{text.rstrip()}" for name, text in streams if text.strip())])

    return (run_command,)
