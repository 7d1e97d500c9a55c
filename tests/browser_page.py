"""A tab of the browser that tests drive: see `browser.py`."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

TIMEOUT = 240.0
"""Seconds that anything may take: a browser on a machine that is busy with other things takes long."""
_CONTRAST = Path(__file__).with_name("browser_contrast.js")
KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "Backspace": (8, ""),
    "Delete": (46, ""),
    "Home": (36, ""),
    "End": (35, ""),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Space": (32, " "),
}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class ProtocolError(Exception):
    """The browser refused a command."""


class PageError(Exception):
    """JavaScript given to `evaluate` threw."""


_MIDDLE = """(selector, covered) => {
  const found = document.querySelector(selector);
  if (!found) return "there is none";
  found.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
  const r = found.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
  const top = document.elementFromPoint(x, y);
  if (!covered && (!top || !(found.contains(top) || top.contains(found)))) return "it is covered or not shown";
  return [x, y];
}"""


class Sender(Protocol):
    """What carries commands: the browser."""

    async def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]: ...


class Page:
    """A tab. `problems` are the errors of its console, its exceptions and failed loads, `requests` all addresses."""

    def __init__(self, browser: Sender, session: str, context: str) -> None:
        self._browser, self._session, self._context = browser, session, context
        self._heard: list[tuple[str, dict[str, Any]]] = []
        self._listeners: list[Callable[[str, dict[str, Any]], None]] = []
        self.problems: list[str] = []
        self.console: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, to this page."""
        return await self._browser.send(method, self._session, **params)

    # -- where it is and how it looks

    async def goto(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        loaded = asyncio.Event()
        loader = ""

        def listen(method: str, params: dict[str, Any]) -> None:
            if method == "Page.loadEventFired":
                loaded.set()

        self._listeners.append(listen)
        try:
            answer = await self.send("Page.navigate", url=url)
            loader = answer.get("errorText", "")
            if loader:
                raise ProtocolError(f"{url} can't be opened: {loader}")
            async with asyncio.timeout(TIMEOUT):
                await loaded.wait()
        except TimeoutError:
            raise TimeoutError(f"{url} was not loaded within {TIMEOUT:.0f} s") from None
        finally:
            self._listeners.remove(listen)

    async def viewport(self, width: int, height: int = 900, scale: float = 1.0) -> None:
        """Set the size of the window, in CSS pixels."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def media(self, *, dark: bool = False, reduced_motion: bool = False) -> None:
        """What the user prefers: colours, motion."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else "no-preference"},
        ]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path: Path | None = None, *, full: bool = False, selector: str = "") -> bytes:
        """A PNG of the window, of the whole page (`full`), or of one element."""
        options: dict[str, Any] = {"format": "png"}
        if selector:
            room = await self.evaluate(
                f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                "return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}; })()"
            )
            options |= {"clip": room | {"scale": 1}, "captureBeyondViewport": True}
        elif full:
            size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            options |= {"clip": clip, "captureBeyondViewport": True}
        data = base64.b64decode((await self.send("Page.captureScreenshot", **options))["data"])
        if path is not None:
            path.write_bytes(data)
        return data

    # -- what is in it

    async def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited where it is a promise. Raises `PageError` when it throws."""
        got = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise PageError(_told(got["exceptionDetails"]))
        return got["result"].get("value")

    async def wait_for(self, script: str, *, timeout: float = TIMEOUT) -> Any:
        """Wait until an expression is true; its value."""
        until = time.monotonic() + timeout
        while True:
            try:
                if value := await self.evaluate(script):
                    return value
            except ProtocolError as why:  # the page that was asked has given way to the next
                if "navigated" not in str(why):
                    raise
            if time.monotonic() > until:
                raise TimeoutError(f"not true within {timeout:.0f} s: {script}; problems: {self.problems}")
            await asyncio.sleep(0.05)

    async def wait_for_selector(self, selector: str, *, timeout: float = TIMEOUT) -> None:
        """Wait until an element is there."""
        await self.wait_for(f"!!document.querySelector({json.dumps(selector)})", timeout=timeout)

    async def text(self, selector: str = "body") -> str:
        """The text of an element as it is shown; "" where there is none."""
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def count(self, selector: str) -> int:
        """How many elements there are."""
        return int(await self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))

    async def accessible(self) -> list[dict[str, str]]:
        """The accessibility tree, flat: role, name, value and description of each node that is not ignored."""
        nodes = (await self.send("Accessibility.getFullAXTree"))["nodes"]
        return [
            {key: str(node.get(key, {}).get("value", "")) for key in ("role", "name", "value", "description")}
            for node in nodes
            if not node.get("ignored")
        ]

    async def poor_contrast(self, least: float = 4.5) -> list[str]:
        """Texts whose contrast to what is behind them is below `least` (WCAG 1.4.3), and their ratio.

        A circle or bar of a picture that lies under a text counts as what is behind it.
        """
        found: list[str] = await self.evaluate(f"({_CONTRAST.read_text()})({least})")
        return found

    # -- what a person does

    async def click(self, selector: str) -> None:
        """Move to the middle of an element, scrolled into view, and click. Raises `PageError` where it is covered."""
        x, y = await self._middle(selector)
        await self._mouse("mouseMoved", x, y)
        await self._mouse("mousePressed", x, y, button="left", clickCount=1)
        await self._mouse("mouseReleased", x, y, button="left", clickCount=1)

    async def hover(self, selector: str) -> None:
        """Move to the middle of an element, or of what lies over it."""
        x, y = await self._middle(selector, covered=True)
        await self._mouse("mouseMoved", x, y)

    async def type(self, text: str, selector: str = "") -> None:
        """Type text where the focus is, or into an element that is clicked first."""
        if selector:
            await self.click(selector)
        await self.send("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press and release a key: a letter, a name of `KEYS`, or with modifiers `Shift+Tab`, `Control+a`."""
        *held, name = key.split("+") if key != "+" else [key]
        code, text = KEYS.get(name, (ord(name.upper()[0]), name))
        modifiers = sum(MODIFIERS[each] for each in held)
        event = {
            "key": " " if name == "Space" else name,
            "code": f"Key{name.upper()}" if len(name) == 1 and name.isalpha() else name,
            "windowsVirtualKeyCode": code,
            "modifiers": modifiers,
        }
        types = modifiers & ~MODIFIERS["Shift"] == 0 and text
        await self.send("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if types else {}))
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def close(self) -> None:
        """Close the page and forget its context."""
        await self._browser.send("Target.disposeBrowserContext", browserContextId=self._context)

    # -- within

    async def _middle(self, selector: str, *, covered: bool = False) -> tuple[float, float]:
        got = await self.evaluate(f"({_MIDDLE})({json.dumps(selector)}, {json.dumps(covered)})")
        if isinstance(got, str):
            raise PageError(f"{selector}: {got}")
        return got[0], got[1]

    async def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def _happened(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(_told(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            line = " ".join(str(arg.get("value", arg.get("description", ""))) for arg in params["args"])
            self.console.append(f"{params['type']}: {line}")
            if params["type"] in ("error", "assert"):
                self.problems.append(line)
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['source']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            task = asyncio.ensure_future(self.send("Page.handleJavaScriptDialog", accept=True))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        for listen in tuple(self._listeners):
            listen(method, params)


def _told(details: dict[str, Any]) -> str:
    exception = details.get("exception", {})
    return str(exception.get("description") or exception.get("value") or details.get("text", ""))
