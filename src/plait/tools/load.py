"""Tools from words, files, modules, plug-ins and plain functions.

A word is what stands on the command line or in a tools list: `calculator`, `lookup:facts.json`, `file.py`,
`module:name`, or a plug-in's name from the entry point group `plait.toolkits` (with `:argument` where it
takes one). `cities=lookup:cities.json` gives the one tool of a word another name. `mcp:COMMAND` and `mcp:http://ADDRESS`
are the tools of an MCP server (`mcp/server.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from msgspec import structs

from plait.core.errors import PlaitError, UsageError
from plait.core.tools import ToolSpec
from plait.plugins import plugins
from plait.tools.objects import is_toolset, tools_of_object
from plait.tools.tool import Tool, tool
from plait.tools.toolset import Toolset, nearest
from plait.tools.user_code import in_a_line, run_file, see_folder

GROUP = "plait.toolkits"
SHIPPED = {
    "calculator": "plait.toolkits.calculator:make_calculator",
    "lookup": "plait.toolkits.lookup:lookup",
    "date": "plait.toolkits.today:date",
    "location": "plait.toolkits.ip_location:location",
    "weather": "plait.toolkits.open_meteo:weather",
    "wikipedia": "plait.toolkits.mediawiki:wikipedia",
    "websearch": "plait.toolkits.serp:websearch",
    "stocks": "plait.toolkits.alpha_vantage:stocks",
    "tables": "plait.toolkits.table_tools:tables",
    "nasa": "plait.toolkits.apod:nasa",
    "images": "plait.toolkits.pictures:images",
    "discord": "plait.toolkits.discord_webhook:discord",
    "slack": "plait.toolkits.slack_api:slack",
    "ask-model": "plait.toolkits.second_model:ask_model",
    "ask-user": "plait.toolkits.person:ask_user",
    "all": "plait.toolkits.shipped:everything",
    "world": "plait.world:world",
}
"""The toolkits that ship, named and not imported: toolkits are built on tools, not the other way round."""

OF_TASKS = {"lab": "plait.lab.tools:tools"}
"""Words that stand in the record of a task's runs and are listed nowhere: its tools are found again by them."""

AT_SERVER = "mcp:"
"""What a word for the tools of an MCP server begins with."""

_RENAMED = r"(\w[\w.-]*)=(.+)"


def load(word: str) -> tuple[Tool, ...]:
    """The tools that a word names, each with the word as its `source`.

    Raises `UsageError`, which says what to do, for a word that names nothing or a file that can't be used.
    A file's folder (and for a module the current one) is added at the end of the import path, so that the
    user's tools may import what lies beside them.
    """
    renamed = re.fullmatch(_RENAMED, word, re.DOTALL)
    if at_server(word):
        from plait.tools.mcp.tools import load_mcp_tools

        return load_mcp_tools(renamed[2].strip() if renamed else word.strip(), renamed[1] if renamed else "")
    if renamed is None:
        return tuple(structs.replace(one, source=word) for one in _load(word.strip()))
    found = _load(renamed[2].strip())
    if len(found) != 1:
        raise UsageError(
            f"{word!r} gives a name to {len(found)} tools at once.",
            hint="Only a word of one tool can be renamed.",
        )
    return (structs.replace(found[0], name=renamed[1], source=word),)


def tools_from(items: Iterable[Any]) -> Toolset:
    """A toolset of tools, plain typed functions (made tools, with no marks), objects and classes (their public methods)
    and words, in order.

    Raises `UsageError` for what is none of them, for two tools of one name, and for a tool whose type hints
    can't be described.
    """
    if isinstance(items, (str, Tool)):
        items = [items]
    found: list[Tool] = []
    for item in items:
        if isinstance(item, Tool):
            found.append(item)
        elif isinstance(item, str):
            found.extend(load(item))
        elif callable(item) and not is_toolset(item):
            found.append(tool(item))
        else:
            found.extend(tools_of_object(item))
    if any(at_server(each.source) for each in found):
        from plait.tools.mcp.tools import qualify_clashing_names

        found = list(qualify_clashing_names(found))
    toolset = Toolset(tuple(found))
    _ = toolset.specs  # what can't be described is said now, not in the middle of a run
    return toolset


def anchored(word: str) -> str:
    """The word with the path in it made absolute: it names the same tools from any folder."""
    prefix, _, rest = word.partition("=") if re.fullmatch(_RENAMED, word, re.DOTALL) else ("", "", word)
    prefix += "=" if prefix else ""
    rest = rest.strip()
    if rest.startswith(AT_SERVER):
        from plait.tools.mcp.server import parse_word

        return prefix + parse_word(rest).word
    if rest.endswith(".py"):
        return prefix + os.path.abspath(rest)
    name, _, argument = rest.partition(":")
    if argument and os.path.exists(argument):
        return f"{prefix}{name}:{os.path.abspath(argument)}"
    return word


def at_server(word: str) -> bool:
    """Does the word, perhaps with a name before it, stand for the tools of an MCP server?"""
    renamed = re.fullmatch(_RENAMED, word, re.DOTALL)
    return (renamed[2] if renamed else word).strip().startswith(AT_SERVER)


def runs_code(word: str) -> bool:
    """Does loading the word, or calling its tools, run code that Plait does not ship: a file, a module, a command?"""
    renamed = re.fullmatch(_RENAMED, word, re.DOTALL)
    name = (renamed[2] if renamed else word).strip().partition(":")[0]
    return name not in SHIPPED and name not in OF_TASKS


def recalled(word: str, specs: Iterable[ToolSpec]) -> tuple[Tool, ...]:
    """The tools of an MCP server as a record describes them."""
    from plait.tools.mcp.tools import restore_mcp_tools

    renamed = re.fullmatch(_RENAMED, word, re.DOTALL)
    return restore_mcp_tools(renamed[2].strip() if renamed else word, specs, renamed[1] if renamed else "")


def toolkit_names() -> tuple[str, ...]:
    """The words that toolkits go by: those that ship, then installed plug-ins."""
    return (*SHIPPED, *(name for name in _plugins() if name not in SHIPPED))


def _load(word: str) -> tuple[Tool, ...]:
    name, colon, argument = word.partition(":")
    if name in SHIPPED:
        return _made(_attribute(SHIPPED[name], word), word, argument if colon else None)
    if word.endswith(".py"):
        return _from_module(run_file(word, "file"), word)
    if name in OF_TASKS:
        return _checked(_called(_attribute(OF_TASKS[name], word), word, argument if colon else None), word)
    plugins = _plugins()
    if name in plugins:
        try:
            plugin = plugins[name].load()
        except Exception as error:
            raise UsageError(
                f"The toolkit {name} can't be loaded: {in_a_line(error)}.", hint="Reinstall it."
            ) from error
        return _made(plugin, word, argument if colon else None)
    if colon and argument and re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return _made(_attribute(word, word), word, None)
    near = nearest(name, _nameable())
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Toolkits: {', '.join(toolkit_names())}."
    raise UsageError(
        f"No toolkit is named {name!r}.",
        hint=f"{hint} A file ends in .py; a name in a module is module:name.",
    )


def _nameable() -> tuple[str, ...]:
    """The words that a misspelt one may have meant: "all" is within too many others."""
    return tuple(name for name in toolkit_names() if name != "all")


def _plugins() -> dict[str, Any]:
    return {point.name: point for point in plugins(GROUP)}


def _attribute(path: str, word: str) -> Any:
    import importlib

    module_name, _, name = path.partition(":")
    if module_name.partition(".")[0] != "plait":
        see_folder()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        near = nearest(module_name, _nameable())
        hint = f"Did you mean the toolkit {' or '.join(near)}?" if near else "Is it installed, or in this folder?"
        raise UsageError(f"{word!r}: there is no module {error.name!r}.", hint=hint) from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{word!r}: the module {module_name} fails when imported: {in_a_line(error)}.") from error
    module = found
    for part in name.split("."):
        if not hasattr(found, part):
            tools = tuple(key for key, value in vars(module).items() if isinstance(value, Tool))
            near = nearest(part, tools or tuple(key for key in vars(module) if not key.startswith("_")))
            hint = f"Did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"{word!r}: the module {module_name} has no {part!r}.", hint=hint)
        found = getattr(found, part)
    return found


def _made(found: Any, word: str, argument: str | None) -> tuple[Tool, ...]:
    """The tools of what a word led to: tools, a module, or what makes tools (given the argument, if any)."""
    name = word.partition(":")[0]
    if isinstance(found, Tool):
        if argument is not None:
            raise UsageError(f"{word!r}: {name} takes nothing after the colon.", hint=f"Write {name}.")
        return (found,)
    if isinstance(found, ModuleType):
        return _from_module(found, word)
    if callable(found) and (argument is not None or name in SHIPPED or name in toolkit_names()):
        return _checked(_called(found, word, argument), word)
    if is_toolset(found):
        return tools_of_object(found)
    if callable(found):
        return (tool(found),)  # module:name says itself which function is meant
    return _checked(found, word)


def _called(factory: Callable[..., Any], word: str, argument: str | None) -> Any:
    import inspect

    name = word.partition(":")[0]
    try:
        inspect.signature(factory).bind(*([] if argument is None else [argument]))
    except TypeError as error:
        if argument is None:
            hint = f"Write {name}:, then what it works on, such as {name}:facts.json."
            raise UsageError(f"The toolkit {name} needs to be told more.", hint=hint) from error
        raise UsageError(f"{word!r}: {name} takes nothing after the colon.", hint=f"Write {name}.") from error
    except ValueError:  # it does not show its parameters
        pass
    try:
        return factory() if argument is None else factory(argument)
    except PlaitError:
        raise
    except Exception as error:
        raise UsageError(f"{word!r}: the toolkit fails: {in_a_line(error)}.") from error


def _checked(found: Any, word: str) -> tuple[Tool, ...]:
    several = (found,) if isinstance(found, Tool) else tuple(found) if isinstance(found, (list, tuple)) else ()
    if not several or not all(isinstance(one, Tool) for one in several):
        raise UsageError(f"{word!r} is a {type(found).__name__} and not a tool.", hint="Make it one with @plait.tool.")
    return several


def _from_module(module: ModuleType, word: str) -> tuple[Tool, ...]:
    """Every tool among a module's names, in the order they were given."""
    found = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if found:
        return tuple(found.values())
    plain = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    hint = f"Put @plait.tool above {' or '.join(plain[:3])}." if plain else "Define some with @plait.tool."
    raise UsageError(f"{word!r} has no tools in it.", hint=hint)
