"""One database, three workers, and runs with effects, while workers are killed, frozen past their lease, cut off and
replaced by others with a changed agent, and the server restarts. One user's spend limit is reached meanwhile: the model
has a ledger of what it was sent for them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from figures import Figures, line_of

import plait
from plait.journal.postgres.store import PostgresStore
from plait.journal.run_query import RunQuery
from plait.journal.store import read_timeline
from plait.models.prices import NANO
from postgres_server import PostgresServer, find_binaries
from spend_script import read_ledger

HERE = Path(__file__).resolve().parent.parent
CALLS, LEASE, WORKERS = 4, 1.0, 3
USERS = 7
USD_A_RUN = 0.001
"""The spender's limit for each of their runs: about half of what these cost."""


class Wire(threading.Thread):
    """Passes a worker's connections on to the server. While `is_cut`, nothing passes, as on a dead network."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.to, self.is_cut = port, False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client: socket.socket) -> None:
        while self.is_cut:
            time.sleep(0.05)
        try:
            server = socket.create_connection(("127.0.0.1", self.to))
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                while self.is_cut:
                    time.sleep(0.05)
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Cluster:
    def __init__(
        self, server: PostgresServer, address: str, folder: Path, seed: int, *options: str, usd: float = 0.0
    ) -> None:
        self.server, self.address, self.folder, self.usd = server, address, folder, usd
        self.ledger, self.chance = folder / "ledger", random.Random(seed)
        self.wires = [Wire(server.port) for _ in range(WORKERS)]
        for each in self.wires:
            each.start()
        self.options = options
        self.processes = [self.start(n) for n in range(WORKERS)]
        self.counts: Counter[str] = Counter()

    def start(self, n: int, **more: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "LEDGER": str(self.ledger),
            "CALLS": str(CALLS),
            "PAY_SECONDS": "0.2",
            "MODEL_SECONDS": "0.01",
            "MODEL_LEDGER": str(self.folder / "requests"),
            "SPEND_USD": str(self.usd or ""),
            "PLAIT_JOURNAL": self.address.replace(f":{self.server.port}/", f":{self.wires[n].port}/"),
            "PLAIT_LEASE_SECONDS": str(LEASE),
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **more,
        }
        command = [sys.executable, *self.options, "-m", "plait", "worker", "-a", "worker_agents:agent"]
        with (self.folder / f"worker{n}").open("ab") as log:
            return subprocess.Popen(
                [*command, "--concurrency", "8"], cwd=self.folder, env=environment, stdout=log, stderr=log
            )

    def disturb(self) -> None:
        """Do one harm, and repair it."""
        n = self.chance.randrange(WORKERS)
        process, wire = self.processes[n], self.wires[n]
        what = self.chance.choice(["kill", "kill", "freeze", "freeze", "cut", "redeploy", "drain", "restart"])
        self.counts[what] += 1
        match what:
            case "kill" | "redeploy":
                process.kill()
                process.wait()
                changed = {"INSTRUCTIONS": f"Version {self.counts[what]}."} if what == "redeploy" else {}
                self.processes[n] = self.start(n, **changed)
            case "drain":
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait()
                self.processes[n] = self.start(n)
            case "freeze":
                process.send_signal(signal.SIGSTOP)
                time.sleep(LEASE * self.chance.uniform(1.2, 2.5))
                process.send_signal(signal.SIGCONT)
            case "cut":
                wire.is_cut = True
                time.sleep(LEASE * self.chance.uniform(1.2, 2.5))
                wire.is_cut = False
            case "restart":
                self.server.stop(self.chance.choice([signal.SIGINT, signal.SIGQUIT]))
                time.sleep(self.chance.uniform(0, 1))
                self.server.start()
        for n, each in enumerate(self.processes):
            if each.poll() is not None:  # the database was away for too long: a service manager starts it again
                self.counts["ended_itself"] += 1
                self.processes[n] = self.start(n)

    def stop(self) -> None:
        for each in self.processes:
            each.kill()
            each.wait()


def run(count: int, seed: int, folder: Path) -> Figures:
    """Submit so many runs, and disturb the workers until all have ended."""
    if find_binaries() is None:
        return Figures("cluster skipped: there are no binaries of PostgreSQL")
    server = PostgresServer().start()
    try:
        return _run(server, count, seed, folder)
    finally:
        server.remove()


def _run(server: PostgresServer, count: int, seed: int, folder: Path) -> Figures:
    address = server.new_journal()
    agent = plait.Agent(model=plait.Scripted(["x"]), loop="tool_calling", journal=address, name="payer")
    store = PostgresStore.at(address)

    async def submit() -> list[str]:
        users = ["spender", *(f"u{n}" for n in range(1, USERS))]
        asked = [(f"q{n} from the {users[n % USERS]}", users[n % USERS]) for n in range(count)]
        return await asyncio.gather(*(agent.asubmit(question, user=user) for question, user in asked))

    async def unfinished() -> int:
        rows = await store.list_runs(RunQuery(is_open=True))
        return sum(row.status not in ("answered", "failed", "stopped", "crashed", "cancelled") for row in rows)

    runs = asyncio.run(submit())
    usd = count / USERS * USD_A_RUN
    cluster = Cluster(server, address, folder, seed, usd=usd)
    begun, failures = time.monotonic(), list[str]()
    try:
        while (left := asyncio.run(unfinished())) and time.monotonic() - begun < 60 + count * 1.5:
            cluster.disturb()
            time.sleep(cluster.chance.uniform(0.2, 1.5))
    finally:
        cluster.stop()
    counts, doubts, statuses = Counter[tuple[str, int]](), 0, Counter[str]()
    for line in cluster.ledger.read_text().splitlines():
        name, n, _ = line.split()
        counts[name, int(n)] += 1

    async def examine() -> None:
        nonlocal doubts
        for name in runs:
            row, timeline = await store.find_run(name), await read_timeline(store, name)
            statuses[row.status] += 1
            is_over = row.head.user == "spender" and (row.outcome or {}).get("limit") == "spend"
            if row.status != "answered" and not is_over:
                failures.append(f"run {name} is {row.status}: {row.outcome}")
            seen = {each.call.input["n"]: each.observation for each in timeline.tool_calls}
            for n in range(CALLS):
                observation = seen.get(n)
                in_doubt = observation is not None and observation.trouble == "in_doubt"
                doubts += in_doubt
                if row.status == "answered" and not in_doubt and counts[name, n] != 1:
                    failures.append(f"call {n} of run {name} was made {counts[name, n]} times")
        failures.extend(await store.check())
        found = await store.list_counters(0)
        failures.extend(f"{each} is over its limit" for each in found if each.usd + each.held_usd > usd * NANO)
        await store.close()

    asyncio.run(examine())
    most, sent = read_ledger(folder / "requests")
    if most > usd or not statuses["stopped"]:
        failures.append(f"the spender spent {most} of {usd} USD in {sent} requests, {statuses['stopped']} runs stopped")
    repeated = [key for key, made in counts.items() if made > 1]
    failures += [f"call {n} of run {name} was made {counts[name, n]} times" for name, n in repeated]
    line = line_of(cluster_runs=count, answered=statuses["answered"], stopped=statuses["stopped"], unfinished=left,
                   effects=sum(counts.values()),
                   repeated=len(repeated), in_doubt=doubts, **cluster.counts)  # fmt: skip
    return Figures(line, failures)
