"""How many of the Python cells that models wrote for grade-school problems each sandbox runs as plain CPython does.

    python benchmarks/code_cells.py                 each sandbox, all cells: some minutes
    python benchmarks/code_cells.py monty --sample 200

The cells are those of ../shared/data/code-gsm8k that import nothing: a reply's first cell, and the output that was
recorded with it. A reply counts as reproduced when its output comes out, white space at the ends apart. What isn't is
grouped by what the sandbox said.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from plait.core.code import CodeLimits
from plait.core.errors import PlaitError
from plait.sandbox import BACKENDS, SandboxTurn, Settings, sandbox

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "code-gsm8k" / "responses.jsonl.gz"
PAIR = re.compile(r"```python\n(.*?)```\s*```output\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Reply:
    """A model's reply: its cells of code, and what each printed."""

    cells: tuple[tuple[str, str], ...]

    @property
    def imports(self) -> bool:
        return any(re.search(r"^\s*(import|from)\s+\w", code, re.MULTILINE) for code, _ in self.cells)


def replies(path: Path = DATA) -> list[Reply]:
    """The replies that have cells with an output, those that import nothing."""
    with gzip.open(path, "rt") as lines:
        texts = [json.loads(one)["response"] for one in lines]
    found = [Reply(tuple((code, output) for code, output in PAIR.findall(text))) for text in texts]
    return [reply for reply in found if reply.cells and not reply.imports]


async def reproduces(name: str, reply: Reply) -> tuple[bool, SandboxTurn | None, str]:
    """Whether a sandbox gives what was recorded, the last turn, and the output that differs."""
    session = await sandbox(name).open(Settings(limits=CodeLimits(seconds=20)))
    turn: SandboxTurn | None = None
    try:
        for code, recorded in reply.cells:
            turn = await session.run(code, 0.0)
            if not same(recorded, turn):
                return False, turn, turn.output
        return True, turn, ""
    finally:
        await session.close()


def same(recorded: str, turn: SandboxTurn) -> bool:
    """The recorded output came, or the error that was recorded."""
    if turn.error is not None:
        return turn.error.type in recorded
    return not turn.calls and turn.output.strip() == recorded.strip()


def reason(turn: SandboxTurn | None) -> str:
    """Why a reply isn't reproduced, in the words it is grouped by."""
    if turn is None:
        return "no turn"
    if turn.calls:
        return f"calls {turn.calls[0].name}(), which is not defined"
    if turn.error is None:
        return "another output"
    return re.sub(r"'[^']*'", "'...'", f"{turn.error.type}: {turn.error.message}")


async def measure(name: str, asked: list[Reply]) -> tuple[int, Counter[str], list[tuple[Reply, SandboxTurn | None]]]:
    """How many of them a sandbox reproduces, and why it doesn't the others."""
    good, why, missed = 0, Counter[str](), []
    for reply in asked:
        right, turn, _ = await reproduces(name, reply)
        good += right
        if not right:
            why[reason(turn)] += 1
            missed.append((reply, turn))
    return good, why, missed


def main() -> None:
    """Print what each sandbox reproduces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BACKENDS))
    parser.add_argument("--sample", type=int, default=0, help="so many replies only, spread over all")
    parser.add_argument("--show", action="store_true", help="print the code of what isn't reproduced")
    options = parser.parse_args()
    asked = replies()
    if options.sample:
        asked = asked[:: max(1, len(asked) // options.sample)][: options.sample]
    for name in options.names:
        began = time.monotonic()
        try:
            good, why, missed = asyncio.run(measure(name, asked))
        except (PlaitError, ImportError) as problem:
            print(f"{name}: {problem}")
            continue
        print(f"{name}: {good} of {len(asked)} in {time.monotonic() - began:.0f} s")
        for group, count in why.most_common():
            print(f"  {count:4} {group}")
        for reply, turn in missed if options.show else []:
            print("-----", reply.cells, turn, sep="\n")


if __name__ == "__main__":
    main()
