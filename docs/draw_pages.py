"""Takes the pictures of the pages in docs/images, with scripted agents and chromium: `python docs/draw_pages.py`."""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path[0:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from studio_load import fill  # noqa: E402

from browser import Browser, Page  # noqa: E402
from plait.journal.store import Journal  # noqa: E402
from window_server import serving  # noqa: E402
from window_support import action, answer, react, rewoo  # noqa: E402

PLACE = ROOT / "docs" / "images"
QUESTION = "How many people live in Lyon and Nice?"
ANSWER = """Lyon has **522,250** people and Nice has *348,085*. Together: `870335`.

| town | people |
|---|--:|
| Lyon | 522,250 |
| Nice | 348,085 |

```python
def add(lyon: int, nice: int) -> int:
    return lyon + nice
```
"""


async def picture(page: Page, name: str, seen: str) -> None:
    """Save what the page shows once it has the element `seen`, with 128 colors."""
    await page.wait_for_selector(seen)
    await asyncio.sleep(1)
    taken = PLACE / f"{name}.png"
    await page.screenshot(taken)
    small = io.BytesIO()
    Image.open(taken).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    taken.write_bytes(small.getvalue())


async def take_all(journal: Path) -> None:
    await fill(Journal.at(str(journal)), 600)
    asked = [action("population", {"town": town}, f"I look up {town}.") for town in ("Lyon", "Nice")]
    writer = react(journal, [answer("The two towns have 870,335 people.")]).as_tool("ask_writer", "Writes texts.")
    told = action("ask_writer", {"question": "Write it down."}, "Now the text.")
    researcher = react(journal, [*asked, told, answer("870335")])
    researcher = researcher.using(tools=[*researcher.tools, writer])
    nested = await researcher.arun(QUESTION)
    planned = await rewoo(journal).arun(QUESTION)
    other = await react(journal, [asked[0], asked[1], answer("About 870,000 people")]).afork(planned.id, 1)
    script = [*asked, answer(ANSWER)]
    async with Browser.started() as browser:
        with serving(react(journal, script)) as server:
            page = await browser.page(width=1280)
            await page.goto(f"{server.url}/")
            for name, at, seen in (
                ("window-runs", "", "tr.run"),
                ("window-run", f"runs/{planned.id}", ".plan svg"),
                ("window-time", f"runs/{nested.id}/time", ".waterfall"),
                ("improve-sides", f"sides/{planned.id}/{other.id}", ".sides"),
                ("window-costs", "costs?by=model&since=30d", "figure.chart svg"),
            ):
                await page.evaluate(f"location.hash = '#/{at}'")
                await picture(page, name, seen)
            await page.goto(f"{server.url}/chat")
            await page.wait_for_selector("textarea")
            await page.type(QUESTION, "textarea")
            await page.press("Enter")
            await page.wait_for_selector(".md table")
            await page.evaluate("document.querySelector('details.trace > summary')?.click()")
            await page.evaluate("scrollTo(0, 0)")
            await picture(page, "chat", ".step")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(take_all(Path(folder) / "journal.db"))
