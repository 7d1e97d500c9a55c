"""The prompts of a loop: templates in files, which a user can show, copy and replace.

A template `NAME.j2` is Jinja, rendered in a sandbox where a missing value is an error. Plait sends a file `NAME.txt` in
a user's folder byte for byte. Texts can also be given without a folder; `given_prompts.py` limits what these may do.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from os.path import normpath
from pathlib import Path
from typing import Any

from plait.core.errors import ConfigError
from plait.core.labels import labels_in
from plait.core.text import suggest
from plait.loops import OURS, shared_prompts_of
from plait.loops import names as loop_names
from plait.runtime.templates.given_prompts import check_given_prompt, render_within_limits
from plait.runtime.templates.prompt_labels import BLOCKS, labels_of_template
from plait.user_files import read_file

_FIXED = frozenset({str, tuple, bool, int, type(None)})
"""Types of values that cannot change after a rendering."""
_SUFFIXES = (".j2", ".txt")
_PROMPTS_OF_OPTIONS = {
    "transcript": {"chat": "question", "user": "earlier", "completion": "completion"},
    "dialect": {name: f"format_{name}" for name in ("blob", "lines", "numbered")},
}
"""Options of loops that choose one of several prompts, with the prompt of each value."""


class PromptBook:
    """The templates of one loop. The user's files replace the shipped ones. Rendering does no I/O.

    `given` is a folder that holds one for each loop (`DIR/react/system.j2`), as written by `plait prompts copy`, or
    templates by LOOP/NAME. `others` are the books of the fallback loops.
    """

    def __init__(
        self,
        loop: str,
        given: Path | Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
        others: Iterable[PromptBook] = (),
    ) -> None:
        self.loop = loop
        self.folder = given if isinstance(given, Path) else None
        self._where = f" in {given}" if self.folder is not None else ""
        self._given = given if isinstance(given, Mapping) else {}
        self._others = {book.loop: book for book in others}
        self._extra = bool(extra)
        own = {**shipped_prompts(loop), **(extra or {})}
        self._texts = {**shared_prompts(), **own}
        self._known = frozenset(self._texts if own else ())
        self._verbatim: dict[str, str] = {}
        self.own: dict[str, str] = {}
        """The texts of the user's files, by the file's name."""
        self._compiled: dict[str, Any] = {}
        self._last: dict[str, tuple[dict[str, Any], str]] = {}
        """Last values and text of each template: a system prompt is the same in each run."""
        if self.folder is not None:
            self._read(self.folder)
        for key, text in self._given.items():
            of_loop, _, name = key.partition("/")
            if of_loop == loop:
                self.own[f"{name}.j2"] = self._texts[name] = text

    def of(self, loop: str) -> PromptBook:
        """Return the book of a fallback loop."""
        return self._others[loop]

    def names(self) -> list[str]:
        return sorted({*self._texts, *self._verbatim})

    def source(self, name: str) -> str:
        """Return the text of a template."""
        if name in self._verbatim:
            return self._verbatim[name]
        if name not in self._texts:
            hint = f"It has: {', '.join(self.names())}."
            raise ConfigError(f"The loop '{self.loop}' has no prompt '{name}'.", hint=hint)
        return self._texts[name]

    def list_templates(self) -> dict[str, str]:
        """Return the texts of all templates by LOOP/NAME, including those of the fallback loops."""
        return {f"{book.loop}/{name}": text for book in self._books() for name, text in sorted(book._texts.items())}

    def list_own_templates(self) -> dict[str, str]:
        """Return the user's templates by LOOP/NAME. Raises `ConfigError` for a file that is no template: it has no form
        as a text."""
        found: dict[str, str] = {}
        for book in self._books():
            for file, text in book.own.items():
                if not file.endswith(".j2"):
                    said = f"The prompts of this agent can't be given as texts: {book.loop}/{file} is sent as it is."
                    raise ConfigError(said, hint="Make it a template, NAME.j2.")
                found[f"{book.loop}/{Path(file).stem}"] = text
        return found

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that the templates print at the beginning of a line (see `core/labels.py`)."""
        found: dict[str, None] = {}
        for name in self.names():
            own = self._verbatim.get(name)
            found.update(dict.fromkeys(labels_in(own) if own is not None else labels_of_template(self._texts[name])))
        return tuple(found)

    @cached_property
    def text(self) -> str:
        """Return the text of all templates, including those of the fallback loops."""
        return "\n".join([*map(self.source, self.names()), *(book.text for book in self._others.values())])

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Fill a template with `values`."""
        if name in self._verbatim:
            return self._verbatim[name]
        before = self._last.get(name)
        if before is not None and _same(before[0], values):
            return before[1]
        compiled = self._compiled.get(name)
        if compiled is None:
            compiled = self._compiled[name] = self._compile(name)
        try:
            text = render_within_limits(compiled, values) if self._given else str(compiled.render(values))
        except Exception as why:
            raise ConfigError(f"The prompt '{self.loop}/{name}' can't be filled: {why}.", hint=self._place()) from why
        if _FIXED.issuperset(map(type, values.values())):
            self._last[name] = (dict(values), text)
        return text

    def check(self) -> None:
        """Check the user's folder and compile all templates. Raises `ConfigError` for a folder without prompts, a file
        that is not a prompt of its loop, a template that is not valid, or an unknown variable."""
        if self.folder is not None and not any(book.own for book in self._books()):
            self._check_layout(self.folder)
        loops = {book.loop for book in self._books()}
        for key, text in self._given.items():
            if key.partition("/")[0] not in loops or "/" not in key:
                hint = f"Write LOOP/NAME, with the loop {' or '.join(sorted(loops))}."
                raise ConfigError(f"prompts has {key!r}, which is no prompt of this agent.", hint=hint)
            if not isinstance(text, str):
                hint = "Give a text."
                raise ConfigError(f"The prompt {key!r} is of type {type(text).__name__}.", hint=hint)
        for book in self._books():
            book._check_templates()
            book._check_names()

    def warn_of_unused(self, options: Mapping[str, Any]) -> None:
        """Warn of a user's template that another value of an option needs, if the one that is used is not the user's.
        `options` are the loop's options by name."""
        own = {Path(file).stem for file in self.own}
        templates = [text for file, text in self.own.items() if file.endswith(".j2")]
        for option, prompts in _PROMPTS_OF_OPTIONS.items():
            used = prompts.get(str(options.get(option)))
            if used is None or used in own:
                continue
            for value, name in prompts.items():
                if name in own and not is_included(name, templates):
                    warnings.warn(
                        f"The prompt {self.loop}/{name}{self._where} is not used: it "
                        f"needs {option}={value}, and the loop has {option}={options[option]}.",
                        stacklevel=2,
                    )

    def _books(self) -> Iterator[PromptBook]:
        """Yield this book and those of all fallback loops."""
        yield self
        for book in self._others.values():
            yield from book._books()

    def _check_layout(self, folder: Path) -> None:
        """Raise `ConfigError` if no loop can use the folder. Warn if only other loops can use it."""
        where = f"{folder} has no prompts for the loop '{self.loop}'"
        if _has_prompts(folder):
            too_deep = folder.resolve().name in loop_names()
            hint = f"use --prompts {normpath(folder / '..')}" if too_deep else f"move them to {folder / self.loop}"
            raise ConfigError(f"{folder} has no folder '{self.loop}'.", hint=f"Its prompts lie in it directly: {hint}.")
        others = [name for name in loop_names() if _has_prompts(folder / name)]
        if not others:
            hint = f"`plait prompts copy {self.loop} {folder}` makes one."
            raise ConfigError(f"{where}: it has no folder '{self.loop}' with files NAME.j2 or NAME.txt.", hint=hint)
        warnings.warn(f"{where}, only for: {', '.join(others)}. Plait uses its own prompts.", stacklevel=2)

    def _check_names(self) -> None:
        """Raise `ConfigError` for a user's file that is not a prompt of the loop, and that no template includes."""
        for file in self.own:
            name = Path(file).stem
            if (
                not self._known
                or name in self._known
                or (file.endswith(".j2") and is_included(name, self._texts.values()))
            ):
                continue
            where = f"{self.folder}/{self.loop}/{file}" if self.folder is not None else f"'{self.loop}/{name}'"
            raise ConfigError(
                f"{where} is not used: the loop '{self.loop}' has no prompt '{name}', and no template includes it.",
                hint=suggest(name, self._known, f"It has: {', '.join(sorted(self._known))}."),
            )

    def _check_templates(self) -> None:
        shipped = {**shared_prompts(), **shipped_prompts(self.loop)}
        own = {Path(file).stem: text for file, text in self.own.items()} if self._given else {}
        for name, text in own.items():
            check_given_prompt(f"{self.loop}/{name}", text, own.keys(), _environment(()).parse, _shipped_texts())
        for name, text in self._texts.items():
            if name not in self._compiled:
                self._compiled[name] = self._compile(name)
            unknown = variables_of(text) - known_variables() if text != shipped.get(name) else set()
            if unknown and not self._extra:
                hint = f"`plait prompts show {self.loop}/{name}` shows the variables of the built-in prompt."
                where = f"The prompt '{self.loop}/{name}'{self._where}"
                raise ConfigError(f"{where} uses the variable '{min(unknown)}', which does not exist.", hint=hint)

    def _compile(self, name: str) -> Any:
        self.source(name)
        try:
            template = _environment(tuple(self._texts.items())).get_template(f"{name}.j2")
            # Jinja copies a plain dict at once, but iterates over other mappings at each rendering.
            template.globals = dict(template.globals)
            return template
        except Exception as why:
            number = getattr(why, "lineno", None)
            line = f" (line {number})" if number else ""
            hint = self._place()
            raise ConfigError(f"The prompt '{self.loop}/{name}' is no valid template{line}: {why}.", hint=hint) from why

    def _place(self) -> str:
        return f"It was read from {self.folder}." if self.folder is not None else ""

    def _read(self, folder: Path) -> None:
        if not folder.is_dir():
            hint = f"`plait prompts copy {self.loop} {folder}` makes one."
            raise ConfigError(f"There is no prompts folder {folder}.", hint=hint)
        for path in sorted((folder / self.loop).glob("*")):
            try:
                text = read_file(path).decode()  # send a prompt byte for byte, line ends included
            except (OSError, UnicodeDecodeError) as why:
                raise ConfigError(f"The prompt {path} can't be read: {why}.") from why
            if path.suffix in _SUFFIXES:
                self.own[path.name] = text
            if path.suffix == ".j2":
                self._texts[path.stem] = text
            elif path.suffix == ".txt":
                self._verbatim[path.stem] = text


@lru_cache(maxsize=64)
def _environment(texts: tuple[tuple[str, str], ...]) -> Any:
    """Return the environment of these templates. Agents with the same prompts share it, and its compiled templates."""
    from jinja2 import DictLoader
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        loader=DictLoader({f"{name}.j2": text for name, text in texts}),
        undefined=_missing_value(),
        auto_reload=False,
        **BLOCKS,
    )
    # As the chat templates of models write it: Jinja's own filter escapes it for HTML.
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    return environment


@cache
def _missing_value() -> Any:
    """Return Jinja's class for a missing value, whose error names the fields that exist."""
    from jinja2 import StrictUndefined

    class MissingValue(StrictUndefined):
        __slots__ = ()

        @property
        def _undefined_message(self) -> str:
            fields = fields_of(self._undefined_obj)
            if self._undefined_hint or not fields:
                return super()._undefined_message
            return f"there is no field '{self._undefined_name}'; the fields are {', '.join(fields)}"

    return MissingValue


def fields_of(value: object) -> list[str]:
    """Return the names of a value's fields as a template can use them; an empty list for text, numbers and lists."""
    if isinstance(value, Mapping):
        return sorted(map(str, value))
    if type(value).__module__ in ("builtins", "jinja2.utils"):
        return []
    return [name for name in dir(value) if name[0] != "_" and not callable(getattr(type(value), name, None))]


@cache
def variables_of(text: str) -> frozenset[str]:
    """Return the variables of a template that it does not set itself."""
    from jinja2 import meta, nodes

    tree = _environment(()).parse(text)
    # Jinja also lists a variable that is set in a branch.
    return frozenset(
        meta.find_undeclared_variables(tree) - {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    )


def is_included(name: str, templates: Iterable[str]) -> bool:
    """Return whether one of the templates includes, imports or extends the template `name`, or may do so."""
    found = frozenset().union(*map(_included_names, templates))
    return any(f"{name}.j2" == each or (not each.endswith(".j2") and name.startswith(each)) for each in found)


@cache
def _included_names(text: str) -> frozenset[str]:
    """Return the files that a template includes; the beginning of a name such as `"format_" ~ dialect ~ ".j2"`."""
    from jinja2 import nodes

    def beginnings(node: nodes.Node) -> frozenset[str]:
        if isinstance(node, nodes.Const):
            return frozenset([str(node.value)])
        if isinstance(node, nodes.Concat):
            return beginnings(node.nodes[0])
        if isinstance(node, nodes.List | nodes.Tuple):
            return frozenset().union(*map(beginnings, node.items))
        return frozenset([""])

    tree = _environment(()).parse(text)
    kinds = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
    return frozenset().union(*(beginnings(each.template) for each in tree.find_all(kinds)))


@cache
def known_variables() -> frozenset[str]:
    """Return the variables of all shipped prompts, and those that only a user's prompt needs."""
    own = {"evidence", "functions", "hits", "phase", "reply", "step", "tools", "turns", "typed"}
    return frozenset(own).union(*map(variables_of, _shipped_texts()))


@cache
def _shipped_texts() -> tuple[str, ...]:
    return (*shared_prompts().values(), *(text for loop in OURS for text in shipped_prompts(loop).values()))


def _same(before: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether the values are the same by a fast test: equal texts; identical objects for other types."""
    if len(before) != len(values):
        return False
    for key, value in before.items():
        given = values.get(key)
        if given is not value and not (type(given) is type(value) is str and given == value):
            return False
    return True


def _has_prompts(folder: Path) -> bool:
    return any(path.suffix in _SUFFIXES for path in folder.glob("*"))


@cache
def shipped_prompts(loop: str) -> Mapping[str, str]:
    """Return the shipped templates of a loop by name; none for a loop that Plait does not ship. Loops share those of
    compaction, of a transcript and of a plan."""
    root = resources.files("plait.loops")
    folders = (*(root / "prompts" / each for each in shared_prompts_of(loop)), root / loop / "prompts")
    return {name: text for folder in folders for name, text in _read_templates(folder).items()}


@cache
def shared_prompts() -> Mapping[str, str]:
    """Return the shipped templates that all loops have, by name. A user's file for a loop replaces them there."""
    return _read_templates(resources.files("plait.loops") / "prompts")


def _read_templates(folder: Traversable) -> Mapping[str, str]:
    if not folder.is_dir():
        return {}
    return {
        item.name.removesuffix(".j2"): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".j2")
    }
