"""How well and how fast texts are found: `Index` as it is, its two sides alone, and other embedders.

python benchmarks/embedders.py                        tools of two public sets, 10 minutes at most
python benchmarks/embedders.py openai:NAME ...        also with these embedders

Reads `../shared/data/tool-search` (beside the checkout) and says so where that is absent. R@k is the mean share of a
query's tools among the first k hits, nDCG@10 as usual. Each tool is its name and its description.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# The seconds of results/embedders.md are those of one thread, unless PLAIT_THREADS says otherwise.
THREADS = os.environ.setdefault("PLAIT_THREADS", "1")

from plait.search import Embedder, Index, load_embedder  # noqa: E402
from plait.search import index as index_module  # noqa: E402

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "tool-search"
SETS = {
    "Seal-Tools in-domain": ("seal-tools/tools", "seal-tools/test_in_domain"),
    "Seal-Tools out-domain": ("seal-tools/tools", "seal-tools/test_out_domain"),
    "Seal-Tools dev": ("seal-tools/tools", "seal-tools/dev"),
    "MetaTool, 2,000 sampled": ("metatool/tools", "metatool/queries"),
}


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tools_of(name: str) -> tuple[list[str], list[str]]:
    found = rows(name)
    names = [tool.get("api_name") or tool["name"] for tool in found]
    told = [tool.get("api_description") or tool["description"] for tool in found]
    return names, [f"{name}. {text}" for name, text in zip(names, told, strict=True)]


def measured(index: Index, queries: list[dict[str, Any]]) -> tuple[float, float, float, float]:
    """R@1, R@5, R@10, nDCG@10."""
    sums = [0.0] * 4
    for query in queries:
        gold = set(query["gold"])
        found = [hit.id in gold for hit in index.search(query["query"], 10)]
        for at, k in enumerate((1, 5, 10)):
            sums[at] += sum(found[:k]) / len(gold)
        best = sum(1 / math.log2(at + 2) for at in range(min(len(gold), 10)))
        sums[3] += sum(hit / math.log2(at + 2) for at, hit in enumerate(found)) / best
    r1, r5, r10, ndcg = (each / len(queries) for each in sums)
    return r1, r5, r10, ndcg


class Blind:
    """An embedder that sees nothing: what is left are the words."""

    name = ""
    dim = 1

    def embed(self, texts: Any) -> Any:
        import numpy as np

        return np.zeros((len(texts), 1), dtype=np.float32)


def table(title: str, using: Embedder, words: float) -> None:
    before, index_module.WORDS = index_module.WORDS, words
    cells = []
    made: dict[str, Index] = {}
    for corpus, questions in SETS.values():
        if corpus not in made:
            made[corpus] = Index(using).add(*tools_of(corpus))
        queries = rows(questions)
        random.Random(0).shuffle(queries)
        cells.append(" ".join(f"{each:.3f}" for each in measured(made[corpus], queries[:2000])))
    index_module.WORDS = before
    print(f"| {title} | {' | '.join(cells)} |", flush=True)


def speed(using: Embedder) -> None:
    _, texts = tools_of("seal-tools/tools")
    many = [f"{text} {number}" for number in range(3) for text in texts][:10_000]
    using.embed(["warm"])
    began = time.perf_counter()
    index = Index(using).add([str(at) for at in range(len(many))], many)
    taken = time.perf_counter() - began
    print(f"\n10,000 texts indexed in {taken:.1f} s ({len(many) / taken:.0f} texts/s), {THREADS} thread(s)")
    queries = [row["query"] for row in rows("seal-tools/dev")[::5]]
    parts: dict[str, list[float]] = {"query": [], "its embedding": []}
    for query in queries:
        began = time.perf_counter()
        index.search(query, 10)
        parts["query"].append(time.perf_counter() - began)
        began = time.perf_counter()
        using.embed([query])
        parts["its embedding"].append(time.perf_counter() - began)
    for part, times in parts.items():
        print(f"{part}: median {statistics.median(times) * 1000:.1f} ms, 95 % within {sorted(times)[-7] * 1000:.1f} ms")


def starting() -> None:
    for code in ("import numpy", "from plait.search import load_embedder; load_embedder().embed(['x'])"):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        print(f"a process that does `{code}`: {time.perf_counter() - began:.2f} s")


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"NOT MEASURED: {DATA} is absent.")
    print(f"| R@1 R@5 R@10 nDCG@10 | {' | '.join(SETS)} |\n|{'---|' * (1 + len(SETS))}")
    table("words alone", Blind(), index_module.WORDS / index_module.SPREAD)
    local = load_embedder("local")
    table("local alone", local, 0.0)
    table("local, as `Index` does it", local, index_module.WORDS)
    for spec in sys.argv[1:]:
        table(f"{spec} alone", load_embedder(spec), 0.0)
        table(spec, load_embedder(spec), index_module.WORDS)
    speed(local)
    starting()


if __name__ == "__main__":
    main()
