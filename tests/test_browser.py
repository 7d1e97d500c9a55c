"""The browser that other tests look through notices what it is trusted to notice, and is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from browser import Browser
from browser_page import PageError

PAGE = """<!doctype html><title>t</title>
<style>button { position: absolute } #over { inset: 0; position: fixed }</style>
<body style="color: #777; background: #777"><button onclick="this.textContent = 'clicked'">press</button><input>
<script>console.error("told"); setTimeout(() => { throw new Error("thrown") });</script>
<img src="missing.png"></body>"""


def alive(group: int) -> list[str]:
    """The processes of a group that still run (one that has ended may wait to be asked for)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().rpartition(") ")
            state, _, its_group, *_ = rest.split()
            if int(its_group) == group and state not in "ZX":
                found.append(name)
    return found


async def test_errors_requests_clicks_and_keys_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE)
    async with Browser.shared() as browser:
        page = await browser.page(width=500, dark=True)
        await page.goto(file.as_uri())
        await page.wait_for("document.readyState === 'complete'")
        await page.evaluate("new Promise(done => setTimeout(done, 50))")
        told = "\n".join(page.problems)
        assert "told" in told
        assert "Error: thrown" in told
        assert "ERR_FILE_NOT_FOUND" in told
        assert page.requests == [file.as_uri(), (tmp_path / "missing.png").as_uri()]
        assert await page.evaluate("innerWidth") == 500
        assert await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        await page.click("button")
        assert await page.text("button") == "clicked"
        await page.type("schön", "input")
        await page.press("a")
        await page.press("Shift+Tab")
        assert await page.evaluate("document.querySelector('input').value") == "schöna"
        assert await page.evaluate("document.activeElement.tagName") == "BUTTON"
        assert [node["name"] for node in await page.accessible() if node["role"] == "button"] == ["clicked"]
        await page.evaluate("document.body.append(Object.assign(document.createElement('p'), {textContent: 'grey'}))")
        assert any("grey: 1.00" in poor for poor in await page.poor_contrast())
        await page.evaluate("document.body.append(Object.assign(document.createElement('div'), {id: 'over'}))")
        with pytest.raises(PageError, match="covered"):
            await page.click("button")
        with pytest.raises(PageError, match="nothere"):
            await page.evaluate("nothere()")
        with pytest.raises(TimeoutError, match="1 === 2"):
            await page.wait_for("1 === 2", timeout=0.2)
        assert (await page.screenshot()).startswith(b"\x89PNG")


async def test_it_is_killed_whatever_happens() -> None:
    with pytest.raises(RuntimeError, match="a test failed"):
        async with Browser.started() as browser:
            await browser.page()
            process = browser.process
            assert alive(process.pid)
            raise RuntimeError("a test failed")
    assert process.returncode is not None
    assert alive(process.pid) == []


async def test_a_browser_that_dies_is_an_error_and_not_a_wait() -> None:
    async with Browser.started() as browser:
        page = await browser.page()
        os.killpg(browser.process.pid, signal.SIGKILL)
        with pytest.raises(Exception, match=r"ended|closing|closed|reset"):
            for _ in range(50):
                await page.evaluate("new Promise(done => setTimeout(done, 100))")
