"""The installed packages that code of the sandbox `process` may use: their modules and folders, by their metadata."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_NO_MODULES = (".dist-info", ".data", ".libs")
_REQUIRED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


class InstalledPackages(Struct, frozen=True):
    """Packages and what they depend on. `modules` are the modules of the packages themselves, `loaded` those of the
    others too, both without submodules; `folders` hold them."""

    modules: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@cache
def find_packages(names: tuple[str, ...]) -> InstalledPackages:
    """Find installed packages by the names of their distributions or modules. What they depend on is found by their
    metadata; what is not installed of it is left out. Raises `ConfigError` for a missing package or an invalid name."""
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            hint = 'Give names without versions: Process(packages=["pandas"]), or process:pandas,numpy.'
            raise ConfigError(f"{name!r} is not the name of a package for the sandbox.", hint=hint)
    found: set[str] = set()
    modules: dict[str, None] = {}
    loaded: dict[str, None] = {}
    folders: dict[str, None] = {}
    todo = [(name, True) for name in names]
    for name, is_named in todo:  # it grows
        if (distribution := _find(name, is_named)) is None:
            continue
        key = re.sub(r"[-_.]+", "-", distribution.name).lower()
        if key in found:
            continue
        found.add(key)
        parts = [(file.parts[0], file.suffix) for file in distribution.files or ()]
        tops = {
            top.partition(".")[0] for top, suffix in parts if suffix in (".py", ".so") and not top.endswith(_NO_MODULES)
        }
        own = dict.fromkeys(sorted(filter(str.isidentifier, tops)))
        if is_named and not own:
            hint = f"Install it in full: pip install --force-reinstall {name}"
            what = f"The package {name!r} has no modules that the sandbox can find: it may be an editable install."
            raise ConfigError(what, hint=hint)
        modules |= own if is_named else {}
        loaded |= own
        folders[str(distribution.locate_file(""))] = None
        for each in distribution.requires or ():
            if "extra ==" not in each.replace("extra==", "extra ==") and (match := _REQUIRED.match(each)):
                todo.append((match[1], False))
    return InstalledPackages(tuple(modules), tuple(loaded), tuple(folders))


def _find(name: str, is_named: bool) -> Any:
    from importlib.metadata import PackageNotFoundError, distribution, packages_distributions  # 20 ms

    with suppress(PackageNotFoundError):
        return distribution(name)
    if not is_named:
        return None
    for owner in packages_distributions().get(name, ()):  # a module's name, such as sklearn
        return distribution(owner)
    hint = f"Install it in this environment: pip install {name}"
    raise ConfigError(f"The package {name!r} of the sandbox is not installed.", hint=hint)
