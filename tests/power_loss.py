"""Power losses: rebuilds a journal's files as a disk may have them when the power fails, and resumes all runs.

    python tests/power_loss.py work FOLDER      # the runs, to be traced by strace
    python tests/power_loss.py 300              # traces them, loses power 300 times, prints figures

`strace` records every write, cut and sync of the files in a folder while several runs at once call a tool with effects.
At a moment of the trace, a file has all that was written before its last sync had begun, and of what came later any
part: each write whole, cut at a sector, or not at all. Each effect is a line in the file `ledger`, which is outside:
it never loses anything. After the resume no line may be there twice, and no run with a line may be missing.

`--unsynced` shows that the check can fail: then the intents of effects are committed like other rows.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import plait
from plait.core import Call, Reply
from plait.core.errors import PlaitError
from plait.journal.sqlite.log import SqliteLog
from plait.journal.store import Journal, wait_for

RUNS, EFFECTS = 6, 5
SECTOR = 512
CALLS = "openat,write,pwrite64,ftruncate,fsync,fdatasync,unlink,unlinkat"
_LINE = re.compile(rb"^(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<call>\w+)\()(?P<rest>.*)$")
_FILE = re.compile(rb'^\d+<(?P<path>[^>]*)>(?:, "(?P<data>[^"]*)")?(?P<numbers>.*)$')


class Operation(NamedTuple):
    """What the trace has of one file. `call` is write, cut, sync, synced or unlink; `at` is a place, a size, or for
    `synced` the number of the operation with which the sync began."""

    call: str
    name: str
    at: int = 0
    data: bytes = b""


def make_agent(folder: Path) -> plait.Agent[Any]:
    """Return the agent of all runs. Its tool writes into the ledger; the question is the run's name."""

    @plait.tool
    def pay(ctx: plait.Context[None], who: str, n: int) -> str:
        """Pay somebody."""
        ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(ledger, f"{who} {n}\n".encode())
        os.close(ledger)
        return "paid " + "x" * 500

    @plait.tool(read_only=True)
    def look(n: int) -> str:
        """Look at something."""
        return "seen"

    def call(n: int) -> Any:
        def say(think: Any) -> Reply:
            who = next(each.content for each in think.messages if each.role == "user")
            return Reply("", calls=(Call("look", {"n": n}, "a"), Call("pay", {"who": who, "n": n}, "b")))

        return say

    script = [*map(call, range(EFFECTS)), "done"]
    return plait.Agent("tool_calling", model=plait.Scripted(script), tools=[pay, look], journal=folder / "j.db")


def work(folder: Path, unsynced: bool) -> None:
    """Perform the runs, side by side."""
    agent = make_agent(folder)
    if unsynced:
        SqliteLog.synced = property(lambda log: -1, lambda log, place: None)  # type: ignore[assignment]

    async def main() -> None:
        await asyncio.gather(*(agent.arun(f"run-{i}") for i in range(RUNS)))

    asyncio.run(main())


def trace(folder: Path, *, unsynced: bool = False) -> list[Operation]:
    """Perform the runs under strace, and return what was done to the files. The trace is beside the folder."""
    log = folder.with_suffix(".trace")
    command = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", str(log)]
    program = [sys.executable, __file__, "work", str(folder), *(["--unsynced"] if unsynced else [])]
    done = subprocess.run([*command, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(read_trace(log, folder))


def read_trace(log: Path, folder: Path) -> Iterator[Operation]:
    """Yield the operations of a trace in their order."""
    begun: dict[bytes, tuple[str, int]] = {}
    number = 0
    for line in log.read_bytes().splitlines():
        if (found := _LINE.match(line)) is None:
            continue
        if found["resumed"]:
            if found["pid"] in begun:
                name, at = begun.pop(found["pid"])
                yield Operation("synced", name, at)
                number += 1
            continue
        call, rest = found["call"].decode(), found["rest"]
        if call in ("unlink", "unlinkat"):
            path = _text(rest.partition(b'"')[2].partition(b'"')[0])
            if Path(path.decode()).parent == folder:
                yield Operation("unlink", Path(path.decode()).name)
                number += 1
            continue
        if (file := _FILE.match(rest)) is None:
            continue
        path = Path(_text(file["path"]).decode("utf-8", "replace"))
        if path.parent != folder or path.name.endswith(("-shm", "-owners")):
            continue
        if call in ("fsync", "fdatasync"):
            if b"<unfinished" in rest:
                begun[found["pid"]] = (path.name, number)
            else:
                yield Operation("synced", path.name, number)
                number += 1
            continue
        numbers = [int(each) for each in re.findall(rb"(?<=, )\d+", file["numbers"])]
        if call == "ftruncate":
            yield Operation("cut", path.name, numbers[0])
        elif call in ("write", "pwrite64"):
            yield Operation("write", path.name, numbers[1] if call == "pwrite64" else -1, _text(file["data"]))
        else:
            continue
        number += 1


def _text(hexed: bytes) -> bytes:
    return bytes.fromhex(hexed.replace(b"\\x", b"").decode()) if hexed.startswith(b"\\x") else hexed


@dataclass
class Lost:
    """A folder after a power loss, and what came of it."""

    wrong: list[str] = field(default_factory=list)
    effects: int = 0
    resumed: int = 0
    in_doubt: int = 0
    asked: int = 0


def rebuild(operations: Sequence[Operation], moment: int, folder: Path, chance: random.Random) -> None:
    """Write the files as a disk may have them at a moment: what was synced, and a part of the rest by chance."""
    files: dict[str, bytearray] = {}
    kept = dict.fromkeys({each.name for each in operations}, -1)
    for each in operations[:moment]:
        if each.call == "synced":
            kept[each.name] = max(kept[each.name], each.at)
    for number, each in enumerate(operations[:moment]):
        if each.call == "unlink":
            files.pop(each.name, None)
        elif each.call in ("write", "cut"):
            data, file = each.data, files.setdefault(each.name, bytearray())
            if number >= kept[each.name] and each.name != "ledger":
                if chance.random() < 0.5:
                    continue
                if each.call == "write" and chance.random() < 0.2:
                    data = data[: len(data) // 2 // SECTOR * SECTOR]
            if each.call == "cut":
                file[:] = file[: each.at].ljust(each.at, b"\0")
            else:
                at = len(file) if each.at < 0 else each.at
                file.extend(bytes(max(0, at - len(file))))
                file[at : at + len(data)] = data
    for name, content in files.items():
        (folder / name).write_bytes(content)


def resume_all(folder: Path) -> Lost:
    """Resume all runs of a rebuilt folder, and compare with the ledger."""
    lost, ledger = Lost(), folder / "ledger"
    paid = ledger.read_text().splitlines() if ledger.exists() else []
    agent, journal = make_agent(folder), Journal(folder / "j.db")
    try:
        rows = {row.head.question: row for row in journal.runs(-1)}
        if damage := wait_for(journal.store.check()):
            lost.wrong.append(f"damaged: {damage}")
        for row in rows.values():
            if row.status != "answered":
                run = agent.resume(row.head.run)
                lost.resumed += 1
                lost.in_doubt += sum(call.seen.trouble == "in_doubt" for call in run.timeline.tool_calls if call.seen)
                lost.asked += run.status == "waiting"  # a torn -wal file looks like a damaged one
                if run.status not in ("answered", "waiting"):
                    lost.wrong.append(f"{row.head.question}: {run.status}, {run.reason}")
    except PlaitError as why:
        rows = {}
        lost.wrong += [f"{type(why).__name__}: {why}"] if paid else []
    if missing := {line.split()[0] for line in paid} - set(rows):
        lost.wrong.append(f"runs with effects are missing: {sorted(missing)}")
    lines = Counter(ledger.read_text().splitlines() if ledger.exists() else [])
    lost.effects = lines.total()
    lost.wrong += [f"repeated: {line}" for line, times in lines.items() if times > 1]
    return lost


def lose_power(count: int, seed: int, folder: Path, *, unsynced: bool = False) -> list[Lost]:
    """Lose power so many times, at moments by chance of traces of about 100 losses each."""
    chance, found = random.Random(seed), []
    for first in range(0, count, 100):
        (place := folder / f"work-{first}").mkdir()
        operations = trace(place, unsynced=unsynced)
        for _ in range(min(100, count - first)):
            rebuilt = Path(tempfile.mkdtemp(dir=folder))
            rebuild(operations, chance.randrange(len(operations)), rebuilt, chance)
            found.append(resume_all(rebuilt))
            shutil.rmtree(rebuilt)
    return found


def describe(results: Sequence[Lost]) -> str:
    """Return a line of figures."""
    wrong = [text for each in results for text in each.wrong]
    repeated = sum(text.startswith("repeated") for text in wrong)
    sums = {name: sum(getattr(each, name) for each in results) for name in ("effects", "resumed", "in_doubt", "asked")}
    figures = {"losses": len(results), **sums, "repeated": repeated, "other_faults": len(wrong) - repeated}
    return " ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(Path(sys.argv[2]), "--unsynced" in sys.argv)
    else:
        with tempfile.TemporaryDirectory() as name:
            results = lose_power(int(sys.argv[1]), 1, Path(name), unsynced="--unsynced" in sys.argv)
        print(describe(results), *(wrong for each in results for wrong in each.wrong), sep="\n")
