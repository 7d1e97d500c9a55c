"""Loads tools from words, files, modules, plug-ins and plain functions.

A word names tools on the command line or in a list of tools: `calculator`, `lookup:facts.json`, `file.py`,
`module:name`, or the name of a plug-in from the entry point group `plait.toolkits` (with `:argument` if it takes one).
`mcp:COMMAND` and `mcp:http://ADDRESS` are the tools of an MCP server. `cities=lookup:cities.json` renames the one tool
of a word.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait.core.errors import ConfigError, PlaitError
from plait.core.hosted import is_hosted_word, read_hosted_word
from plait.core.text import clean, cut_text
from plait.core.tools import ToolSpec
from plait.installation import plugins
from plait.tools.objects import is_toolset, tools_of_object
from plait.tools.tool import Tool, tool
from plait.tools.toolset import Toolset, nearest
from plait.tools.user_code import add_to_path, read_file, run_file, show_error

if TYPE_CHECKING:
    from plait.tools.mcp.tools import McpToolSource

GROUP = "plait.toolkits"
TASK_GROUP = "plait.task_toolkits"
"""Toolkits for the tasks of a suite. They are not listed, but records name them, so a run can load its task's tools."""

SHIPPED = {
    "calculator": "plait.toolkits.calculator:make_calculator",
    "lookup": "plait.toolkits.lookup:lookup",
    "date": "plait.toolkits.place_and_weather:date",
    "location": "plait.toolkits.place_and_weather:location",
    "weather": "plait.toolkits.place_and_weather:weather",
    "wikipedia": "plait.toolkits.web_search:wikipedia",
    "websearch": "plait.toolkits.web_search:websearch",
    "fetch": "plait.toolkits.web_page:fetch",
    "stocks": "plait.toolkits.alpha_vantage:stocks",
    "tables": "plait.toolkits.frame:tables",
    "nasa": "plait.toolkits.image:nasa",
    "images": "plait.toolkits.image:images",
    "discord": "plait.toolkits.messages:discord",
    "slack": "plait.toolkits.messages:slack",
    "files": "plait.toolkits.folder_tools:files",
    "docs": "plait.toolkits.documents:docs",
    "shell": "plait.toolkits.folder_tools:shell",
    "skills": "plait.toolkits.skill_folders:skills",
    "memory": "plait.toolkits.notes:memory",
    "todo": "plait.toolkits.todo_list:todo",
    "ask-model": "plait.toolkits.questions:ask_model",
    "ask-user": "plait.toolkits.questions:ask_user",
    "run-python": "plait.toolkits.run_python:run_python",
    "all": "plait.toolkits:everything",
}
"""The built-in toolkits, by name, because toolkits are built on tools and cannot be imported here."""

FOLDERS = ("files", "docs", "shell", "skills")
"""The built-in toolkits that use a folder of the user's: their words need as much trust as words of code."""

WORDED = ("calculator", "fetch", "websearch", "memory")
"""The built-in toolkits whose argument is never a path, even if a file has its name."""

MCP = "mcp:"
"""The prefix of a word for the tools of an MCP server."""


def check_word(word: str) -> None:
    """Raise `ConfigError` for an invalid word, without running code of the user or starting a server."""
    rest = _split_name(word)[1]
    name, _, text = rest.partition(":")
    if is_hosted_word(rest):
        read_hosted_word(rest)
        return
    if rest.startswith(MCP) or name in SHIPPED or _is_module_word(name, text):
        return
    if rest.endswith(".py"):
        read_file(rest)
    elif name not in _plugins():
        raise _unknown(name)


def load(word: str) -> tuple[Tool, ...]:
    """Load the tools that a word names, each with the word as its `source`.

    Appends the folder of a file, or the current folder for a module, to the import path, so that the user's tools can
    import their neighbours. Raises `ConfigError` with a hint if the word names nothing or the file cannot be used.
    """
    name, rest = _split_name(word)
    if rest.startswith(MCP):
        return _mcp_source(rest, name).load_tools()
    if is_hosted_word(rest):
        said = f"{read_hosted_word(rest).word} runs at the provider of a model, so there is nothing to load here."
        raise ConfigError(said, hint="Name it among the tools of an agent, without another name.")
    found = _load(rest)
    if not name:
        return tuple(structs.replace(one, source=word) for one in found)
    if len(found) != 1:
        hint = "Only a word of one tool can be renamed."
        raise ConfigError(f"{word!r} gives a name to {len(found)} tools at once.", hint=hint)
    return (structs.replace(found[0], name=name, source=word),)


def tools_from(items: Iterable[Any]) -> Toolset:
    """Make a toolset of tools, typed functions, objects and classes (their public methods) and words, in order. Raises
    `ConfigError` for anything else, for two tools of one name, and for type hints that cannot be described."""
    if isinstance(items, (str, Tool)):
        items = [items]
    found: list[Tool] = []
    absent: dict[str, str] = {}
    for item in items:
        if isinstance(item, Tool):
            found.append(item)
        elif isinstance(item, str):
            try:
                found.extend(load(item))
            except ConfigError as error:
                if not is_mcp_word(item):
                    raise
                from plait.tools.mcp.server import parse_word

                if not parse_word(_split_name(item)[1]).optional:
                    error.hint += " If runs can go on without it, make it optional."
                    raise
                absent[anchor_word(item)] = cut_text(clean(f"An optional server has no tools now. {error}"), 800)
        elif callable(item) and not is_toolset(item):
            found.append(tool(item))
        else:
            found.extend(tools_of_object(item))
    if any(is_mcp_word(each.source) for each in found):
        from plait.tools.mcp.tools import qualify_clashing_names

        found = list(qualify_clashing_names(found))
    toolset = Toolset(tuple(found), absent=absent)
    _ = toolset.specs  # report types that cannot be described now, before a run
    return toolset


def anchor_word(word: str) -> str:
    """Make the path in a word absolute, so that the word names the same tools from any folder."""
    name, rest = _split_name(word)
    prefix = f"{name}=" if name else ""
    if rest.startswith(MCP):
        from plait.tools.mcp.server import parse_word

        return prefix + parse_word(rest).word
    if rest.endswith(".py"):
        return prefix + os.path.abspath(rest)
    toolkit, _, argument = rest.partition(":")
    if is_hosted_word(rest):
        return word
    if toolkit in FOLDERS:  # an option may follow the path
        argument, *option = re.split(r",(?=(?:read_only|trusted)\Z)", argument)
        is_list = toolkit in ("shell", "skills") and not os.path.isdir(os.path.expanduser(argument))
        paths = re.split(r"(,readable=|,)", argument) if is_list else [argument]  # paths, and what is between them
        paths[::2] = [os.path.abspath(os.path.expanduser(path)) for path in paths[::2]]
        return f"{prefix}{toolkit}:{','.join([''.join(paths), *option])}"
    if argument and toolkit not in WORDED and os.path.exists(argument):
        return f"{prefix}{toolkit}:{os.path.abspath(argument)}"
    return word


def is_mcp_word(word: str) -> bool:
    """Return whether a word names the tools of an MCP server."""
    return _split_name(word)[1].startswith(MCP)


def opens_folder(word: str) -> bool:
    """Return whether a word's tools use the files of a folder that it names."""
    return _split_name(word)[1].partition(":")[0] in FOLDERS


def is_described_outside(word: str) -> bool:
    """Return whether the descriptions of a word's tools can change beside Plait: those of a server, or of skills."""
    return is_mcp_word(word) or _split_name(word)[1].startswith("skills:")


def recall_tools(word: str, specs: Iterable[ToolSpec]) -> tuple[Tool, ...]:
    """Return the tools of an MCP server as a record describes them. The server is only needed when one of them is
    called. So a replay needs no server, and a resumed run shows its models the same tools as before."""
    name, rest = _split_name(word)
    source = _mcp_source(rest, name)
    return tuple(source.make_tool(spec, is_recorded=True) for spec in specs)


def _mcp_source(word: str, name: str) -> McpToolSource:
    from plait.tools.mcp.server import parse_word
    from plait.tools.mcp.tools import McpToolSource

    return McpToolSource(parse_word(word), name)


def toolkit_names() -> tuple[str, ...]:
    """Return the words of toolkits: those that ship, then installed plug-ins."""
    return (*SHIPPED, *(point.name for point in plugins(GROUP) if point.name not in SHIPPED))


def _split_name(word: str) -> tuple[str, str]:
    renamed = re.fullmatch(r"(\w[\w.-]*)=(.+)", word, re.DOTALL)
    return (renamed[1], renamed[2].strip()) if renamed else ("", word.strip())


def _load(word: str) -> tuple[Tool, ...]:
    name, colon, text = word.partition(":")
    argument = text if colon else None
    if name in SHIPPED:
        return _make_tools(import_name(SHIPPED[name], word), word, argument)
    if word.endswith(".py"):
        return _tools_of_module(run_file(word, "file"), word)
    if (plugin := _plugins().get(name)) is not None:
        try:
            found = plugin.load()
        except Exception as error:
            hint = "Reinstall it."
            raise ConfigError(f"The toolkit {name} can't be loaded: {show_error(error)}.", hint=hint) from error
        return _make_tools(found, word, argument)
    if _is_module_word(name, text):
        return _make_tools(import_name(word, word), word, None)
    raise _unknown(name)


def _is_module_word(name: str, text: str) -> bool:
    return bool(text and re.fullmatch(r"[A-Za-z_][\w.]*", name))


def _unknown(name: str) -> ConfigError:
    hint = _suggest(name, "") or f"Toolkits: {', '.join(toolkit_names())}."
    hint = f"{hint} A file ends in .py; a name in a module is module:name."
    return ConfigError(f"No toolkit is named {name!r}.", hint=hint)


def _plugins() -> dict[str, Any]:
    return {point.name: point for group in (TASK_GROUP, GROUP) for point in plugins(group)}


def _suggest(name: str, what: str, known: Iterable[str] | None = None) -> str:
    """Suggest similar names (default: of toolkits); "" if there are none."""
    if known is None:
        known = (one for one in toolkit_names() if one != "all")  # "all" is a part of too many other names
    near = nearest(name, tuple(known))
    return f"Did you mean {what}{' or '.join(near)}?" if near else ""


def import_name(path: str, word: str, kind: type = Tool) -> Any:
    """Import `module:name`. Raises `ConfigError`, which names the word (see `find_attribute`)."""
    module_name, _, name = path.partition(":")
    if module_name.partition(".")[0] != "plait":
        add_to_path(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = _suggest(module_name, "the toolkit ") or "Is it installed, or in this folder?"
        raise ConfigError(f"{word!r}: there is no module {error.name!r}.", hint=hint) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{word!r}: the module {module_name} fails when imported: {show_error(error)}.") from error
    return find_attribute(module, name, f"the module {module_name}", word, kind)


def load_object(word: str, what: str) -> Any:
    """Return what `module:name` or `file.py:name` names. Raises `ConfigError`; `what` says what the word should name.
    The folder of a file, or the current folder for a module, is appended to the import path. A file runs once."""
    place, _, name = word.strip().rpartition(":")
    if place.endswith(".py") and name:
        return find_attribute(run_file(place, "file"), name, place, word, object)
    if not _is_module_word(place, name):
        raise ConfigError(f"{word!r} does not name {what}.", hint="Write module:name or file.py:name.")
    return import_name(f"{place}:{name}", word, object)


def find_attribute(module: ModuleType, name: str, place: str, word: str, kind: type = Tool) -> Any:
    """Return the value of a dotted name in a module. Raises `ConfigError` with similar names, those of a kind first."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            alike = [key for key, value in vars(module).items() if isinstance(value, kind) and not key.startswith("_")]
            hint = _suggest(part, "", alike or [key for key in vars(module) if not key.startswith("_")])
            raise ConfigError(f"{word!r}: {place} has no {part!r}.", hint=hint)
        found = getattr(found, part)
    return found


def _make_tools(found: Any, word: str, argument: str | None) -> tuple[Tool, ...]:
    """Make tools from the value of a word: a tool, a module, a function, or one that makes tools of the argument."""
    name = word.partition(":")[0]
    if isinstance(found, Tool):
        if argument is not None:
            raise _no_argument(word)
        return (found,)
    if isinstance(found, ModuleType):
        return _tools_of_module(found, word)
    if callable(found) and (argument is not None or name in toolkit_names()):
        return _require_tools(_call_factory(found, word, argument), word)
    if is_toolset(found):
        return tools_of_object(found)
    if callable(found):
        return (tool(found),)  # module:name states itself which function is meant
    return _require_tools(found, word)


def _no_argument(word: str) -> ConfigError:
    name = word.partition(":")[0]
    return ConfigError(f"{word!r}: {name} takes nothing after the colon.", hint=f"Write {name}.")


def _call_factory(factory: Callable[..., Any], word: str, argument: str | None) -> Any:
    name = word.partition(":")[0]
    arguments = () if argument is None else (argument,)
    try:
        inspect.signature(factory).bind(*arguments)
    except TypeError as error:
        if argument is not None:
            raise _no_argument(word) from error
        example = "FOLDER" if name in FOLDERS else "ARGUMENT, such as lookup:facts.json"
        raise ConfigError(f"The toolkit {name} needs an argument.", hint=f"Write {name}:{example}.") from error
    except ValueError:  # its parameters are not accessible
        pass
    try:
        return factory(*arguments)
    except PlaitError:
        raise
    except Exception as error:
        raise ConfigError(f"{word!r}: the toolkit fails: {show_error(error)}.") from error


def _require_tools(found: Any, word: str) -> tuple[Tool, ...]:
    several = (found,) if isinstance(found, Tool) else tuple(found) if isinstance(found, (list, tuple)) else ()
    if not several or not all(isinstance(one, Tool) for one in several):
        raise ConfigError(f"{word!r} is a {type(found).__name__} and not a tool.", hint="Make it one with @plait.tool.")
    return several


def _tools_of_module(module: ModuleType, word: str) -> tuple[Tool, ...]:
    """Return every tool among a module's names, in the order of their definition."""
    found = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if found:
        return tuple(found.values())
    plain = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    hint = f"Put @plait.tool above {' or '.join(plain[:3])}." if plain else "Define some with @plait.tool."
    raise ConfigError(f"{word!r} has no tools in it.", hint=hint)
