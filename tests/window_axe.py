"""An accessibility check of a page in the browser: axe, by the package axe-core-python, put in by DevTools.

A policy of the page does not bind DevTools, so the check runs in pages that let no script in. PLAIT_AXE names another
axe.min.js, such as a newer one.
"""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from browser import Page


@functools.cache
def source() -> str:
    """The script; skips the test, loudly, where there is none."""
    if named := os.environ.get("PLAIT_AXE"):
        return Path(named).read_text("utf-8")
    spec = find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("NOT CHECKED: accessibility (pip install axe-core-python)")
    return Path(spec.origin).with_name("axe.min.js").read_text("utf-8")


async def found(page: Page, least: str = "minor", within: str = "html") -> list[str]:
    """What axe has against a part of the page, at least that grave: rule, what is wrong, where. Behind an open dialog
    axe takes the dialog for the background: check them one by one."""
    grades = ["minor", "moderate", "serious", "critical"]
    await page.evaluate(f"(() => {{ if (!window.axe) {{ {source()} }} }})()")
    wrong = await page.evaluate(
        f"axe.run({within!r}, {{resultTypes: ['violations']}}).then((found) => found.violations)"
    )
    return [
        f"{each['id']}: {each['help']} {[node['target'] for node in each['nodes'][:3]]}"
        for each in wrong
        if grades.index(each["impact"] or "minor") >= grades.index(least)
    ]
