"""The cache of vectors: shared by processes, done without when it can't be used, made anew when it is damaged."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from fork_server import start_forked
from plait.search import CachedEmbedder, Index, VectorCache, load_embedder
from plait.search.cache import BATCH, default_cache_file


class Counting:
    """An embedder that says what it was asked."""

    name = "counting:1"
    dim = 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return np.array([[len(text), 1] for text in texts], dtype=np.float32).reshape(-1, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "embeddings.db"


def test_a_kept_text_is_not_embedded_again_by_another_process_either(path: Path) -> None:
    first, second = Counting(), Counting()
    cache = VectorCache(path)
    rows = CachedEmbedder(first, cache).embed(["a", "bb", "a", "été 🚀 \ud800"])
    assert first.asked == ["a", "bb", "été 🚀 \ud800"]
    cache = VectorCache(path)
    again = CachedEmbedder(second, cache).embed(["été 🚀 \ud800", "a", "bb"])
    assert second.asked == [] and np.array_equal(again, rows[[3, 0, 1]]) and again.dtype == np.float32
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_search_cache import Counting; from plait.search import VectorCache, CachedEmbedder\n"
        f"own = Counting(); rows = CachedEmbedder(own, VectorCache({str(path)!r})).embed(['bb', 'new'])\n"
        "print(own.asked, rows.tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['new'] [[2.0, 1.0], [3.0, 1.0]]"


def test_the_file_holds_no_text(path: Path) -> None:
    cache = VectorCache(path)
    CachedEmbedder(Counting(), cache).embed(["the secret of the house"])
    assert b"secret" not in path.read_bytes()


def test_another_embedder_does_not_get_them_and_one_without_a_name_keeps_none(path: Path) -> None:
    cache = VectorCache(path)
    CachedEmbedder(Counting(), cache).embed(["a"])
    other = Counting()
    other.name = "counting:2"
    CachedEmbedder(other, cache).embed(["a"])
    assert other.asked == ["a"]
    nameless = Counting()
    nameless.name = ""
    for _ in range(2):
        CachedEmbedder(nameless, cache).embed(["a"])
    assert nameless.asked == ["a", "a"]


def test_a_length_that_changed_under_the_same_name_is_embedded_again(path: Path) -> None:
    cache = VectorCache(path)
    cache.put("counting:1", ["a"], np.ones((1, 5), dtype=np.float32))
    own = Counting()
    assert CachedEmbedder(own, cache).embed(["a"]).shape == (1, 2) and own.asked == ["a"]
    assert CachedEmbedder(Counting(), cache).embed(["a"]).shape == (1, 2)


def test_what_an_interruption_loses_is_little(path: Path) -> None:
    class Breaking(Counting):
        def embed(self, texts: Sequence[str]) -> Any:
            if len(self.asked) >= BATCH:
                raise KeyboardInterrupt
            return super().embed(texts)

    texts = [str(number) for number in range(BATCH + 5)]
    cache = VectorCache(path)
    with pytest.raises(KeyboardInterrupt):
        CachedEmbedder(Breaking(), cache).embed(texts)
    own = Counting()
    assert CachedEmbedder(own, cache).embed(texts).shape == (BATCH + 5, 2)
    assert own.asked == texts[BATCH:]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path: Path) -> None:
    path.write_bytes(b"this is no database at all " * 500)


def scrambled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def of_another_shape(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("alter table vectors rename column vector to numbers")
    db.close()


def of_another_version(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.close()


@pytest.mark.parametrize("damage", [truncated, overwritten, scrambled, of_another_shape, of_another_version])
def test_a_damaged_file_is_put_aside_and_made_anew(path: Path, damage: Callable[[Path], None]) -> None:
    texts = [f"text {number}" for number in range(200)]
    cache = VectorCache(path)
    rows = CachedEmbedder(Counting(), cache).embed(texts)
    damage(path)
    cache = VectorCache(path)
    assert np.array_equal(CachedEmbedder(Counting(), cache).embed(texts), rows)
    again = Counting()
    assert np.array_equal(CachedEmbedder(again, cache).embed(texts), rows) and again.asked == []
    assert Path(f"{path}.damaged").exists()


def test_a_vector_whose_bytes_changed_is_embedded_again(path: Path) -> None:
    cache = VectorCache(path)
    CachedEmbedder(Counting(), cache).embed(["a", "bb"])
    db = sqlite3.connect(path)
    (vector,) = db.execute("select vector from vectors limit 1").fetchone()
    db.execute("update vectors set vector = ? where vector = ?", (vector[:-1] + b"\x7f", vector))
    db.commit()
    db.close()
    own = Counting()
    cache = VectorCache(path)
    assert CachedEmbedder(own, cache).embed(["a", "bb"]).tolist() == [[1, 1], [2, 1]]
    assert len(own.asked) == 1


def test_damage_under_an_open_cache_is_survived(path: Path) -> None:
    cache = VectorCache(path)
    CachedEmbedder(Counting(), cache).embed(["a"])
    overwritten(path)
    for _ in range(3):
        assert CachedEmbedder(Counting(), cache).embed(["a", "bb"]).shape == (2, 2)


def test_a_place_that_can_not_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "folder.db"
    folder.mkdir()
    for place in (tmp_path / "file" / "embeddings.db", folder):
        own = Counting()
        cache = VectorCache(place)
        assert CachedEmbedder(own, cache).embed(["a"]).tolist() == [[1, 1]]
        assert own.asked == ["a"]
    assert folder.is_dir() and (tmp_path / "file").read_text() == "in the way"


def test_a_file_that_is_locked_is_done_without(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.search.cache._WAIT_SECONDS", 0.1)
    cache = VectorCache(path)
    CachedEmbedder(Counting(), cache).embed(["a"])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    own = Counting()
    assert CachedEmbedder(own, cache).embed(["a", "bb"]).tolist() == [[1, 1], [2, 1]]
    assert own.asked == ["bb"]  # reading goes on beside a writer
    holder.close()
    assert not Path(f"{path}.damaged").exists()


def test_its_size_is_bounded_and_the_oldest_go(path: Path) -> None:
    size = 2_000_000
    cache = VectorCache(path, size=size)
    for round in range(20):
        cache.put("big", [f"{round}-{n}" for n in range(200)], np.full((200, 384), round, dtype=np.float32))
        assert path.stat().st_size <= 1.5 * size
    assert cache.get("big", ["0-0"])[0] is None
    newest = cache.get("big", ["19-199"])[0]
    assert newest is not None and newest[0] == 19
    kept = sum(vector is not None for r in range(20) for vector in cache.get("big", [f"{r}-{n}" for n in range(200)]))
    assert 600 < kept < 1400
    cache.put("big", [f"all {n}" for n in range(3000)], np.zeros((3000, 384), dtype=np.float32))  # more than fits
    assert VectorCache(path).get("big", ["x"]) == [None]


def test_several_processes_and_threads_write_at_once(path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_search_cache import Counting; from plait.search import VectorCache, CachedEmbedder\n"
        f"cached = CachedEmbedder(Counting(), VectorCache({str(path)!r}))\n"
        "for n in range(40):\n"
        "    rows = cached.embed([f'{sys.argv[1]} {n}', 'x' * n])\n"
        "    assert rows.tolist() == [[len(f'{sys.argv[1]} {n}'), 1], [n, 1]]\n"
    )
    children = [start_forked(["-c", code, f"child{n}"], stdin=0, stdout=1, stderr=2) for n in range(3)]
    shared = CachedEmbedder(Counting(), VectorCache(path))
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(40):
                assert shared.embed([f"{name} {n}"]).tolist() == [[len(f"{name} {n}"), 1]]
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=work, args=(f"thread{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait(60) for child in children] == [0, 0, 0] and not failed
    own = Counting()
    cache = VectorCache(path)
    names = [f"{kind}{w} {n}" for kind in ("child", "thread") for w in range(3) for n in range(40)]
    CachedEmbedder(own, cache).embed(names)
    assert own.asked == []
    assert not Path(f"{path}.damaged").exists()


def test_a_fork_uses_a_connection_of_its_own(path: Path) -> None:
    code = (
        f"import sys, os; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_search_cache import Counting; from plait.search import VectorCache, CachedEmbedder\n"
        f"cached = CachedEmbedder(Counting(), VectorCache({str(path)!r}))\n"
        "cached.embed(['before'])\n"
        "child = os.fork()\n"
        "cached.embed([f'after {child == 0}'])\n"
        "if child == 0: os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "cached.embedder.asked.clear(); cached.embed(['before', 'after True', 'after False'])\n"
        "print(cached.embedder.asked)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PLAIT_CACHE", raising=False)
    assert VectorCache().path == default_cache_file() == tmp_path / "xdg" / "plait" / "embeddings.db"
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "own"))
    assert VectorCache().path == tmp_path / "own" / "embeddings.db"
    assert not (tmp_path / "own").exists()  # nothing is made before the first use


def test_an_index_with_a_cache_finds_the_same(path: Path) -> None:
    texts = ["The train leaves at nine.", "Bread needs salt.", "The bridge is closed."]
    plain = Index(load_embedder()).add("abc", texts).search("when do we depart?")
    for _ in range(2):
        cache = VectorCache(path)
        assert Index(load_embedder(), cache).add("abc", texts).search("when do we depart?") == pytest.approx(plain)
