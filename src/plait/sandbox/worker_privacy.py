"""How the worker hides the host's paths and process numbers from code. Stdlib only.

It covers everything that code can reach without crafted memory access: attributes of `sys` and of modules, file names
in code objects (and so in tracebacks), loaders. It replaces the paths before the lock, while modules are loaded.
"""

from __future__ import annotations

import _imp
import gc
import os
import sys
from types import FunctionType, ModuleType
from typing import Any

LIBRARY, WORKER = "/python", "/sandbox"
"""The folders that code sees instead of the standard library's and this one."""

FOLDERS = {os.path.dirname(os.path.abspath(__file__)): WORKER, os.path.dirname(os.__file__): LIBRARY}


def show_path(path: str) -> str:
    """Return the path of a module's file as code sees it."""
    for folder, name in FOLDERS.items():
        if path == folder or path.startswith(folder + os.sep):
            return name + path[len(folder) :]
    known = not path.startswith(os.sep) or path.startswith((LIBRARY, WORKER))
    return path if known else f"{LIBRARY}/{os.path.basename(path)}"


def hide_file_names() -> None:
    """Compile future imports under names without the host's folders, and rename loaded code."""
    from importlib.machinery import SourceFileLoader

    rename: Any = getattr(_imp, "_fix_co_filename")  # noqa: B009
    get_code = SourceFileLoader.get_code

    def replace_name(self: Any, name: str) -> Any:
        code = get_code(self, name)
        if code is not None:
            rename(code, show_path(code.co_filename))
        return code

    SourceFileLoader.get_code = replace_name  # type: ignore[method-assign, assignment]
    for one in gc.get_objects():
        if type(one) is FunctionType:
            rename(one.__code__, show_path(one.__code__.co_filename))
    for name in ("prefix", "base_prefix", "exec_prefix", "base_exec_prefix", "_stdlib_dir"):
        setattr(sys, name, LIBRARY)
    sys.executable = sys._base_executable = ""  # type: ignore[attr-defined]
    sys._home = None  # type: ignore[attr-defined]
    sys.argv, sys.orig_argv = [""], [""]
    # zoneinfo needs one folder from it; the module itself reveals how and where this Python was built.
    sys.modules["sysconfig"] = without_answers = ModuleType("sysconfig")
    without_answers.get_config_var = lambda name: None  # type: ignore[attr-defined]


def hide_paths() -> None:
    """Replace the paths in all modules. Afterwards nothing can be imported from files."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            _rename(module)
    for one in gc.get_objects():  # the interpreter's data about modules written in C
        if type(one) is dict:
            if isinstance(one.get("__file__"), str):
                one["__file__"] = show_path(one["__file__"])
            for key in [key for key in one if type(key) is tuple and len(key) == 2 and _is_path(key[0])]:
                one[show_path(key[0]), key[1]] = one.pop(key)
    sys.path, sys.path_hooks = [], []
    sys.path_importer_cache.clear()
    FOLDERS.clear()


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith(os.sep)


def _rename(module: ModuleType) -> None:
    names = vars(module)
    spec = names.get("__spec__")
    if "__cached__" in names:
        names["__cached__"] = None
    if "__path__" in names:
        names["__path__"] = [show_path(path) for path in names["__path__"]]
    loaders = [names.get("__loader__")]
    if spec is not None:
        loaders.append(spec.loader)
        spec.loader_state = None
        if isinstance(spec.origin, str):
            spec.origin = show_path(spec.origin)
            spec.cached = None
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations = names.get("__path__", [])
    for loader in loaders:
        if isinstance(getattr(loader, "path", None), str):
            loader.path = show_path(loader.path)  # type: ignore[union-attr]
