"""Runs long tests with counts: `make campaign`, `python tests/campaign --short`, `python tests/campaign kills`.

Each part prints one line of figures. The program exits with 1 if a part found a failure, and prints what failed below
the lines. `--seed` repeats a campaign; without it, each campaign draws another one and prints it.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0:1] = [str(HERE.parent), str(HERE)]

import approving  # noqa: E402
import bodies  # noqa: E402
import broken_endpoints  # noqa: E402
import cancelling  # noqa: E402
import clustering  # noqa: E402
import damaging  # noqa: E402
import entries  # noqa: E402
import escaping  # noqa: E402
import featuring  # noqa: E402
import guarding  # noqa: E402
import halving  # noqa: E402
import killing  # noqa: E402
import long_tests  # noqa: E402
import power_losses  # noqa: E402
import providers  # noqa: E402
import reading  # noqa: E402
import removed  # noqa: E402
import resuming  # noqa: E402
import rows  # noqa: E402
import sharing  # noqa: E402
import streaming  # noqa: E402
import tainting  # noqa: E402
import wheels  # noqa: E402
from figures import Figures  # noqa: E402

# part: (what it does, what is counted, the full count, the short count)
PARTS: dict[str, tuple[Callable[[int, int, Path], Figures], str, int, int]] = {
    "readers": (reading.run, "replies read, whole and one character at a time", 300_000, 3_000),
    "bodies": (bodies.run, "streams and bodies of all wires with repeated, cut and odd pieces", 10_000, 300),
    "halves": (halving.run, "replies cut within the input of their call", 20_000, 2_000),
    "escapes": (escaping.run, "random texts of the readers' pieces, escaped and read again in parts", 100_000, 2_000),
    "kills": (killing.run, "SIGKILLs of runs of all loops, also of their resumes", 2_000, 60),
    "kills-postgres": (killing.run_in_postgres, "the same with a journal in PostgreSQL", 2_000, 30),
    "features": (
        featuring.run,
        "SIGKILLs of runs with skills, memory, hosted tools, MCP and more",
        3_000,
        24,
    ),
    "features-postgres": (featuring.run_in_postgres, "the same with a journal in PostgreSQL", 3_000, 12),
    "rows": (rows.run, "runs of every kind of step and guard, killed at a write to the journal", 5_000, 60),
    "lifecycles": (
        rows.run_lifecycles,
        "runs with dependencies, files and verify=, killed at a write to the journal or at any time",
        2_500,
        24,
    ),
    "cancel": (cancelling.run, "runs of all loops cancelled in all ways at random moments, and resumed", 1_000, 24),
    "damage": (damaging.run, "damaged files of a journal", 600, 36),
    "power": (power_losses.run, "losses of power while runs call tools with effects", 300, 10),
    "resumes": (resuming.run, "pairs of processes that resume one run under a locked journal", 200, 6),
    "processes": (sharing.run, "processes that run, die and resume each other's runs on one journal", 20, 4),
    "cluster": (
        clustering.run,
        "runs on three workers that are killed, frozen, cut off and replaced, while the database restarts",
        1_000,
        20,
    ),
    "approvals": (approving.run, "duplicate approvals, from Python and by HTTP", 10_000, 200),
    "guards": (
        guarding.run,
        "lenient inputs against every guard in every loop, and instructions of strangers by all parts",
        5_000,
        80,
    ),
    "entries": (entries.run, "random runs of the core, killed at random and answered by other processes", 2_000, 60),
    "taint": (tainting.run, "conversations in which a stranger's words travel and a mail is sent", 2_000, 60),
    "endpoints": (broken_endpoints.run, "runs against endpoints that break off, never end or send too much", 600, 40),
    "providers": (providers.run, "rounds of all loops with profiles of hosted models, printed as a matrix", 3, 1),
    "streams": (streaming.run, "streams at once from one server", 300, 40),
    "wheels": (wheels.run, "environments with the wheel and one extra each, in which every command is run", 12, 1),
    "removed": (removed.run, "built-in guards, each left out of a run of all tests", 8, 0),
    "tests": (long_tests.run, "rounds of tests with large counts: properties, hostile programs, disk faults", 1, 0),
}


def main() -> int:
    options = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__.split("\n\n")[0])
    options.add_argument("parts", nargs="*", metavar="PART", help=f"parts to run (all): {', '.join(PARTS)}")
    options.add_argument("--short", action="store_true", help="small counts, about a minute on 2 cores")
    options.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31), help="repeats a campaign")
    for name, (_, what, full, short) in PARTS.items():
        options.add_argument(f"--{name}", type=int, metavar="N", help=f"{what} ({full:,}; --short: {short:,})")
    given = options.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}")
    print(f"campaign with --seed {given.seed}", flush=True)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # clients that leave are what the parts are about
    failures: list[str] = []
    for name, (run, _, full, short) in PARTS.items():
        count = getattr(given, name.replace("-", "_"))
        count = (short if given.short else full) if count is None else count
        if not count or (given.parts and name not in given.parts):
            continue
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="plait-campaign-") as folder:
                found = run(count, given.seed, Path(folder))
        except Exception as why:  # a part that breaks is a failure; the others still run
            found = Figures(f"{name} broke off", [f"{type(why).__name__}: {why}"])
        mark = f"FAILED {len(found.failures)}" if found.failures else "ok"
        print(f"{found.line} · {time.monotonic() - began:.0f} s · {mark}", flush=True)
        failures += [f"{name}: {each}" for each in found.failures]
    for each in failures[:40]:
        print(each[:2000])
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
