"""The processes of `plait compare --workers`: each makes the same comparison, and they share its cells."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from plait.core.errors import ConfigError, PlaitError
from plait.lab.schedule import LOOK_EVERY, Scheduler

PARENT = "_PLAIT_WORKER_OF"
"""The variable that names the process for which a worker works: its parent."""
RESTARTS = 4
"""How many times as many workers as were asked for may be killed: then what is left stays unfinished."""
CANCELLED = 130
"""The code with which a command ends that a signal cancelled."""
GRACE = 8.0
"""Seconds that a worker has to end: when all cells have results, and when it is cancelled."""


class CellWorkers:
    """Performs a comparison in `processes` workers. `command` makes the same comparison in each, and prints why cells
    are unfinished. It exits with 0 if none is, and with 4 otherwise."""

    def __init__(self, command: Sequence[str], processes: int) -> None:
        if processes < 1:
            raise ConfigError(f"{processes} workers are not possible.", hint="Give 1 or more.")
        self._command, self._count = command, processes

    async def run(self, scheduler: Scheduler) -> str:
        """Let the workers run the open cells. Return why some are still unfinished, or ""."""
        await scheduler.begin()
        killed, most, why = 0, RESTARTS * self._count, list[str]()

        async def work() -> None:
            nonlocal killed
            while scheduler.open and killed <= most:
                environment = {**os.environ, PARENT: str(os.getpid())}
                # In a session of its own, so that Ctrl-C reaches this process only, which then ends the workers.
                process = await asyncio.create_subprocess_exec(
                    *self._command, stdout=asyncio.subprocess.PIPE, env=environment, start_new_session=True
                )
                try:
                    said, _ = await process.communicate()
                finally:
                    if process.returncode is None:
                        process.terminate()
                        with suppress(TimeoutError):
                            await asyncio.wait_for(process.wait(), GRACE)
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                code = process.returncode or 0
                if code in (0, 4):
                    why.extend(filter(None, said.decode().splitlines()[-1:]))
                    return
                if code > 0 and code != CANCELLED:
                    raise PlaitError("A worker ended with an error.", hint="It stands above.")
                killed += 1
                scheduler.report(said=f"A worker was killed.{' Another one takes its place.' * (killed <= most)}")
                await scheduler.look()

        tasks = [asyncio.create_task(work()) for _ in range(self._count)]
        try:
            going = set(tasks)
            while going:
                ended, going = await asyncio.wait(going, timeout=LOOK_EVERY)
                for each in ended:
                    each.result()
                await scheduler.look()
                if not scheduler.open:
                    await asyncio.wait(going or tasks, timeout=GRACE)  # a frozen one does not end by itself
                    break
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        why += [f"{killed} workers were killed"] * (killed > most)
        return "; ".join(dict.fromkeys(why)) if scheduler.open else ""


@cache
def parent_to_work_for() -> int | None:
    """Return the process for which this one is a worker, or None."""
    named = os.environ.pop(PARENT, "")  # what this process starts is no worker
    return int(named) if named.isdecimal() else None


async def end_with_parent(parent: int, task: asyncio.Task[object]) -> None:
    """Cancel the task when the parent has died, and with it whoever wanted the result."""
    while os.getppid() == parent:
        await asyncio.sleep(LOOK_EVERY)
    task.cancel()
