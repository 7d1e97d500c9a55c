"""`skills`: the skills of folders, in the Agent Skills format. The model sees their names and descriptions, and reads
their texts and files when it needs them.

A skill is a folder with a file SKILL.md: its name and description as YAML between two lines `---`, then a text that
says how to do one kind of task. Nothing in a skill is code, an approval or a setting to Plait: `allowed-tools` is not
read, and a script runs only by a tool that runs commands.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import yaml
from msgspec import Struct, structs

from plait.core.errors import ConfigError, ToolError
from plait.core.text import clean, cut_text, decode_text, one_line, show_hidden
from plait.toolkits.folder import Folder, show_lines
from plait.tools.tool import Tool, tool

SKILL_FILE = "SKILL.md"
MAX_SKILL, MAX_HEADER = 1_000_000, 20_000
"""Maximum size of a SKILL.md in bytes, and of what stands between its `---` lines in characters."""
MAX_DEPTH, MAX_TOKENS = 12, 2_000
"""Maximum depth of that header's YAML, and of its parts."""
MAX_ENTRIES, MAX_SKILLS, MAX_DESCRIPTION, MAX_DESCRIPTIONS = 5_000, 200, 1_024, 20_000
"""Maximum number of names in a folder that are looked at, of skills, and of characters of one and all descriptions."""
LISTED, LINES = 50, 800
"""Maximum number of a skill's files that are listed, and of lines that are shown at once."""
TRUSTED = ",trusted"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HEADER = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN = re.compile(r"^(name|description):[ \t]+(\w.*)$", re.MULTILINE)


class Skill(Struct, frozen=True):
    """A skill: where it is (`path` in `folder`, which ends in / or is ""), and what the model sees of it."""

    name: str
    description: str
    folder: Folder
    path: str


def skills(*folders: str | Path, trusted: bool = False) -> tuple[Tool, ...]:
    """Makes the tool `read_skill` for the skills of one or several folders. Each is a skill, or holds skills.

    The tool's description lists the skills. Others may have written them, so this description and all results count as
    content from outside, unless they are `trusted`. In a word: `skills:FOLDER,FOLDER,trusted`. Warns of folders that
    are no valid skills. Raises `ConfigError` if there is no skill, or if two have one name.
    """
    given = list(folders)
    if len(given) == 1 and isinstance(given[0], str):
        word = given[0]
        trusted, word = trusted or word.endswith(TRUSTED), word.removesuffix(TRUSTED)
        given = [word] if Path(word).expanduser().is_dir() else [*word.split(",")]
    found: dict[str, Skill] = {}
    for folder in given or [""]:
        for each in _find_skills(Folder.open(folder, "skills")):
            if (other := found.setdefault(each.name, each)) is not each:
                places = (str(one.folder.root / one.path) for one in (other, each))
                raise ConfigError(f"Two skills are named {each.name}: {' and '.join(places)}.", hint="Rename one.")
    if not 1 <= len(found) <= MAX_SKILLS:
        where = ", ".join(str(Path(folder).expanduser().absolute()) for folder in given)
        hint = f"Each skill is a folder in it with a {SKILL_FILE}. At most {MAX_SKILLS} can be listed."
        raise ConfigError(f"There are {len(found):,} usable skills in {where}.", hint=hint)
    room = min(MAX_DESCRIPTION, MAX_DESCRIPTIONS // len(found))
    lines = [f"[{each.name}] {cut_text(each.description, room)}" for each in found.values()]

    @tool(
        description="Shows how to do a kind of task, as a skill describes it. Read the skill that fits before you "
        f"begin such a task. The skills: {' '.join(lines)}",
        read_only=True,
        open_world=not trusted,
        foreign=not trusted,
    )
    def read_skill(skill: str, file: str = SKILL_FILE, first_line: int = 1) -> str:
        """Shows the text of a skill or of one of its files.

        Args:
            skill: The skill's name.
            file: The path of another file of the skill, as its text names it.
            first_line: The number of the first line, from 1.
        """
        if (wanted := found.get(skill.strip().strip("[]`'\""))) is None:
            raise ToolError(f"There is no skill {cut_text(skill, 80)!r}.", hint=f"There are: {', '.join(found)}.")
        if file.strip().removeprefix("./") in ("", SKILL_FILE):
            text, about = _read_skill_file(wanted.folder, wanted.path + SKILL_FILE)[1], _describe_files(wanted)
            return f"{about}\n{show_lines(SKILL_FILE, text, max(first_line, 1), LINES)}"
        text = show_hidden(wanted.folder.read_text(wanted.path + file.strip()))
        return show_lines(file.strip(), text, max(first_line, 1), LINES)

    return (structs.replace(read_skill, always_shown=True),)


def _find_skills(folder: Folder) -> Iterator[Skill]:
    """Yield the skills of a folder, by name: the folder itself, or its folders that have a SKILL.md."""
    names = sorted(os.listdir(folder.descriptor))[:MAX_ENTRIES]
    for path in [""] if SKILL_FILE in names else [f"{name}/" for name in names if name[0] != "."]:
        if not os.path.lexists(folder.root / path / SKILL_FILE):
            continue  # a folder, and no skill
        try:
            name, description = _read_header(_read_skill_file(folder, f"{path}{SKILL_FILE}")[0])
        except ToolError as why:
            place = one_line(str(folder.root / path))
            warnings.warn(f"The skill {place} is left out: {why.message}", stacklevel=4)
        else:
            yield Skill(name, description, folder, path)


def _read_skill_file(folder: Folder, path: str) -> tuple[str, str]:
    """Return what stands between the `---` lines of a SKILL.md, and the text below. Raises `ToolError`."""
    text = decode_text(folder.read_bytes(path, MAX_SKILL))
    if text is None:
        raise ToolError(f"{path} is not text.")
    text = text.replace("\r\n", "\n")
    header = _HEADER.match(text)
    return (header[1], show_hidden(text[header.end() :]).strip("\n")) if header else ("", show_hidden(text))


def _read_header(header: str) -> tuple[str, str]:
    """Return the name and the description of a skill. Raises `ToolError`, which says what is wrong with it.

    Only plain values are read: no tags, and no aliases, with which a small file makes a huge value.
    """
    if not header:
        raise ToolError(f"{SKILL_FILE} does not begin with its name and description between two lines '---'.")
    if len(header) > MAX_HEADER:
        raise ToolError(f"there are more than {MAX_HEADER:,} characters between its lines '---'.")
    try:
        depth = 0
        for n, token in enumerate(yaml.scan(header)):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                raise ToolError("its header has YAML anchors, aliases or tags; write plain values.")
            kind = type(token).__name__  # BlockMappingStartToken, FlowSequenceEndToken ...
            depth += kind.endswith("StartToken") - kind.endswith("EndToken")
            if depth > MAX_DEPTH or n > MAX_TOKENS:  # reading such a header takes long
                raise ToolError("its header is nested too deep, or has too many parts.")
        found = yaml.load(header, yaml.BaseLoader)  # all values are texts, lists and mappings of them
    except yaml.YAMLError as why:
        found = dict(_PLAIN.findall(header))  # "Use it when: ..." without quotes, as many write it
        if "name" not in found or "description" not in found:
            said = one_line(str(why))[:200]
            raise ToolError(f"its header is no valid YAML ({said}). Put values in quotes.") from None
    name, description = (found.get(each) if isinstance(found, dict) else None for each in ("name", "description"))
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
        wanted = "at most 64 small letters, digits and single hyphens"
        raise ToolError(f"its name is {cut_text(one_line(str(name)), 80)!r}, and must be {wanted}.")
    described = " ".join(clean(description).split()) if isinstance(description, str) else ""
    if not described:
        raise ToolError("it has no description.")
    return name, described


def _describe_files(skill: Skill) -> str:
    """Return a line that names the folder of a skill and its files."""
    walked = skill.folder.walk(f"{skill.path}**")
    found = [f"{each.path.removeprefix(skill.path)} ({each.size:,} bytes)" for each in islice(walked, LISTED)]
    names = [each for each in found if not each.startswith(f"{SKILL_FILE} ")] + ["..."] * (len(found) == LISTED)
    return f"[Skill {skill.name}, folder {skill.folder.root / skill.path}. Other files: {', '.join(names) or 'none'}.]"
