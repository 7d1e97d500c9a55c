"""How well and how fast tools are found by `ToolIndex`.

python benchmarks/tool_search.py              all queries of four public sets, and the times; some 10 minutes
python benchmarks/tool_search.py --speed      the times alone

Reads `../shared/data/tool-search` (beside the checkout) and says so where that is absent. R@k is the mean share of a
query's tools among the first k that are found, nDCG@10 as usual. What is measured is the class that plait uses, as it
is, with the tools as it would be given them: name, description, parameters.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait.core import ToolSpec
from plait.search import ToolIndex, VectorCache, load_embedder

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tool-search"
SETS = (
    ("Seal-Tools in-domain", "seal-tools/tools", "seal-tools/test_in_domain", 0),
    ("Seal-Tools out-domain", "seal-tools/tools", "seal-tools/test_out_domain", 0),
    ("Seal-Tools dev", "seal-tools/tools", "seal-tools/dev", 0),
    ("MetaTool, 2,000 sampled", "metatool/tools", "metatool/queries", 2000),
    ("MetaTool, all", "metatool/tools", "metatool/queries", 0),
)
KINDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tool_of(row: dict[str, Any]) -> ToolSpec:
    """A set's tool as plait describes one."""
    properties = {
        name: {"type": KINDS.get(about.get("type", ""), "string"), "description": about.get("description", "")}
        for name, about in (row.get("parameters") or {}).items()
    }
    schema = {"type": "object", "properties": properties, "required": row.get("required", [])}
    return ToolSpec(row.get("api_name") or row["name"], row.get("api_description") or row["description"], schema)


def measured(index: ToolIndex, queries: list[dict[str, Any]]) -> list[float]:
    """R@1, R@5, R@10, nDCG@10."""
    sums = [0.0] * 4
    for query in queries:
        gold = set(query["gold"])
        found = [each.tool.name in gold for each in index.search(query["query"], 10)]
        for at, k in enumerate((1, 5, 10)):
            sums[at] += sum(found[:k]) / len(gold)
        best = sum(1 / math.log2(at + 2) for at in range(min(len(gold), 10)))
        sums[3] += sum(hit / math.log2(at + 2) for at, hit in enumerate(found)) / best
    return [each / len(queries) for each in sums]


def quality() -> None:
    print("| | tools | queries | R@1 | R@5 | R@10 | nDCG@10 |\n|---|---|---|---|---|---|---|")
    made: dict[str, ToolIndex] = {}
    for title, corpus, questions, sample in SETS:
        if corpus not in made:
            made[corpus] = ToolIndex([tool_of(row) for row in rows(corpus)], cache=False)
        queries = rows(questions)
        if sample:
            random.Random(0).shuffle(queries)
            queries = queries[:sample]
        found = " | ".join(f"{each:.3f}" for each in measured(made[corpus], queries))
        print(f"| {title} | {len(made[corpus]):,} | {len(queries):,} | {found} |", flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    print(f"{what}: {time.perf_counter() - wall:.1f} s, {time.process_time() - cpu:.1f} s of CPU", flush=True)


def many(number: int) -> list[ToolSpec]:
    """So many tools, no two alike: those of Seal-Tools, each again with a number in name and description."""
    found = [tool_of(row) for row in rows("seal-tools/tools")]
    return [
        ToolSpec(f"{tool.name}{round or ''}", f"{tool.description} {round or ''}".strip(), tool.parameters)
        for round in range(1 + number // len(found))
        for tool in found
    ][:number]


def speed(file: str) -> None:
    tools = many(10_000)
    load_embedder("local").embed(["warm"])
    load = os.getloadavg()[0]
    print(f"\nThe machine has {os.cpu_count()} cores; its load was {load:.1f} when this began.")
    with timed("10,000 tools indexed"):
        index = ToolIndex(tools, cache=VectorCache(file))
    subprocess.run([sys.executable, __file__, "--again", file], check=True)
    changed = [*tools[:-1], ToolSpec(tools[-1].name, "Rolls a die with any number of sides.")]
    with timed("one of them described anew"):
        assert index.update(changed) == 1
    words = " ".join(row["query"] for row in rows("seal-tools/dev")).split()
    print("\n| words of the query | CPU, median | CPU, 95 % | wall, median |\n|---|---|---|---|")
    for length in (1, 5, 10, 20, 30, 40):
        times = []
        for at in range(100):
            query = " ".join(words[at * 40 : at * 40 + length])
            wall, cpu = time.perf_counter(), time.process_time()
            index.search(query, 3)
            times.append((time.process_time() - cpu, time.perf_counter() - wall))
        cpus, walls = (sorted(1000 * each for each in column) for column in zip(*times, strict=True))
        print(f"| {length} | {cpus[50]:.1f} ms | {cpus[94]:.1f} ms | {walls[50]:.1f} ms |", flush=True)


def again(file: str) -> None:
    tools = many(10_000)
    load_embedder("local")
    with timed("the same in a new process, from the cache"):
        ToolIndex(tools, cache=VectorCache(file))


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"NOT MEASURED: {DATA} is absent.")
    if sys.argv[1:2] == ["--again"]:
        again(sys.argv[2])
        return
    if "--speed" not in sys.argv:
        quality()
    with tempfile.TemporaryDirectory() as folder:
        speed(f"{folder}/vectors.db")


if __name__ == "__main__":
    main()
