"""Bodies told from the one before come back exactly, and a run's space grows with its steps only."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from journal_rows import request
from plait.journal import bodies as delta
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import RunHead
from plait.journal.store import Journal

pieces = st.sampled_from([b"", b"a", b"abc" * 20, b'{"role":"user"}' * 5, b"\x00\xff" * 30, bytes(range(256)) * 12])
bodies = st.one_of(st.binary(max_size=200), st.lists(pieces, max_size=8).map(b"".join))


@given(st.lists(bodies, max_size=12))
@example([b"", b"", b"x" * 5000, b"x" * 5000, b"x" * 4999, b""])
@example([b"ab" * 40, b"ab" * 41, b"ab" * 39])  # head and tail would overlap
def test_any_list_of_bodies_is_restored_exactly(some: list[bytes]) -> None:
    base = None
    for body in some:
        coded = delta.encode(body, base)
        assert delta.decode(coded, base) == body
        base = body


@given(bodies, bodies)
def test_shared_head_and_tail_are_the_longest_there_are(a: bytes, b: bytes) -> None:
    head = delta.shared_head(a, b)
    assert a[:head] == b[:head]
    assert a[head : head + 1] != b[head : head + 1] or head == min(len(a), len(b))
    most = min(len(a), len(b)) - head
    tail = delta.shared_tail(a, b, most)
    assert a[len(a) - tail :] == b[len(b) - tail :]
    assert tail == most or a[len(a) - tail - 1] != b[len(b) - tail - 1]


def test_a_body_that_does_not_fit_its_base_is_noticed() -> None:
    coded = delta.encode(b"x" * 100 + b"new" + b"y" * 100, b"x" * 100 + b"y" * 100)
    assert coded.head == 100 and coded.tail == 100 and coded.body == b"new"
    for base in (None, b"x" * 150):
        with pytest.raises(delta.Unrestorable):
            delta.decode(coded, base)
    with pytest.raises(delta.Unrestorable):
        delta.decode(delta.Coded(None, None, 1, b"not zlib"))


def chat(turns: list[tuple[str, str]]) -> bytes:
    """A request whose messages grow near its end, before other fields."""
    messages = [{"role": "system", "content": "Work with the tools below. " * 40}]
    for thought, observation in turns:
        messages += [{"role": "assistant", "content": thought}, {"role": "user", "content": observation}]
    return json.dumps({"model": "m", "messages": messages, "stop": ["Observation:"], "temperature": 0}).encode()


def one_string(turns: list[tuple[str, str]]) -> bytes:
    """A request whose one user message grows."""
    log = "".join(f"\nThought: {thought}\nObservation: {observation}" for thought, observation in turns)
    message = {"role": "user", "content": f"The question.\n{log}\nThought:"}
    return json.dumps({"model": "m", "messages": [message], "stop": ["Observation:"], "temperature": 0}).encode()


@pytest.mark.parametrize("request_of", [chat, one_string])
async def test_a_run_of_200_steps_takes_at_most_3_times_the_space_of_100(request_of: object, tmp_path: Path) -> None:
    sizes = {}
    for steps in (100, 200):
        source = random.Random(7)  # words that no compression sees through
        turns: list[tuple[str, str]] = []
        path = tmp_path / f"{steps}.db"
        journal = Journal(path)
        log = await journal.store.begin(RunHead(new_run_id(), "q", {"name": "react"}, {}), owner_of_this_process())
        sent = []
        for n in range(steps):
            body = request_of(turns)
            sent.append(body)
            await log.append((request(f"{n}a0", n + 1), body))
            turns.append((source.randbytes(120).hex(), source.randbytes(200).hex()))
        await log.end("answered", {"type": "answered", "answer": 1}, {})
        assert [row.body for row in journal.rows(log.run)] == sent
        journal.close()
        sizes[steps] = path.stat().st_size
    assert sizes[200] <= 3 * sizes[100]
    assert sizes[200] < 200 * 2500  # 640 new characters a step; whole bodies would be 13 MB
