"""Endless replies are cut, also with a counter or small changes; long tables, lists, logs and programs are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from itertools import count, product
from random import Random

import pytest

from conftest import CAMPAIGN, DATA, data_file, for_each
from episodes import fever, hotpotqa
from plait.models.wires.repetition import LONG, CircleCut
from recorded_wires import decoded, model_of, recorded

R = Random(34)
NAMES = ["Aldo", "Berta", "Carl", "Dora", "Emil", "Frieda", "Gustav", "Hanna", "Igor", "Jana", "Kurt", "Lena", "Max"]
THINGS = [
    "river",
    "stone",
    "lamp",
    "window",
    "garden",
    "bridge",
    "paper",
    "engine",
    "winter",
    "market",
    "castle",
    "letter",
]
START, DAY = datetime(2026, 3, 1), date(2026, 1, 1)
LENGTH = 16_000 if CAMPAIGN else 5_000


def name() -> str:
    return "".join(R.choice("bdfglmnprst") + R.choice("aeiou") for _ in range(3)).title()


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def log(i: int) -> str:
    said = [f"GET /users/{R.randint(1, 9999)} 200 {R.randint(3, 900)}ms", f"queue length is {R.randint(0, 40)}"]
    return f"{START + timedelta(seconds=7 * i + R.randint(0, 5))} INFO {R.choice(said)}\n"


def moves(i: int) -> str:
    return f"{i}. " + "".join(f"{R.choice(['', 'N', 'B', 'Q'])}{R.choice('abcdefgh')}{R.randint(1, 8)} " for _ in "ab")


def verse(i: int) -> str:
    lines = (f"{R.choice(NAMES)} went to the {R.choice(THINGS)} with a {R.choice(THINGS)}\n" for _ in range(4))
    return "".join(lines) + "Oh, sing with us\nAll night, all night long\n" * 2


GOOD: dict[str, Callable[[int], str]] = {
    "csv": lambda i: f"{i},{R.choice(NAMES)},{R.choice(THINGS)},{R.randint(1, 500)}\n",
    "yes or no": lambda i: f'{{"id": {i}, "paid": {R.choice(["true", "false"])}}},\n',
    "records": lambda i: json.dumps({"id": i, "name": name(), "score": R.randint(0, 100)}, indent=2) + ",\n",
    "scores": lambda i: f'{{"id": {i}, "role": "user", "score": {R.randint(0, 100)}}},\n',
    "multiplication": lambda i: (
        f"{(i - 1) // 12 + 1} times {(i - 1) % 12 + 1} is {((i - 1) // 12 + 1) * ((i - 1) % 12 + 1)}\n"
    ),
    "multiples": lambda i: f"7 times {i} is {7 * i}\n",
    "grid": lambda i: "| " + " | ".join(str(i * column) for column in range(1, 21)) + " |\n",
    "squares": lambda i: f"The square of {i} is {i * i}.\n",
    "temperatures": lambda i: f"{5 * i} degrees Celsius are {9 * i + 32} degrees Fahrenheit.\n",
    "primes": lambda i: f"{i} is {'prime' if is_prime(i) else 'not prime'}\n",
    "integers": lambda i: f"{i}, ",
    "dates": lambda i: f"{DAY + timedelta(i)}\n",
    "fizz buzz": lambda i: ("Fizz" * (i % 3 == 0) + "Buzz" * (i % 5 == 0) or str(i)) + "\n",
    "truth table": lambda i: "| " + " | ".join("FT"[i >> bit & 1] for bit in range(9)) + " |\n",
    "hex dump": lambda i: f"{16 * i:08x} " + " ".join(f"{R.randint(0, 255):02x}" for _ in range(16)) + "\n",
    "log": log,
    "readings": lambda i: f"{START + timedelta(minutes=i)} temperature {18 + R.random() * 3:.1f} C\n",
    "training": lambda i: f"epoch {i // 20 + 1} step {i % 20 + 1} loss {2 / i + R.random():.4f} rate 0.001\n",
    "servers": lambda i: f"server-{i:03} is {R.choice(['up', 'up', 'down'])}\n",
    "chess": moves,
    "song": verse,
    "sql": lambda i: f"INSERT INTO items (id, name, price) VALUES ({i}, '{R.choice(THINGS)}', {R.randint(1, 99)});\n",
    "countries": lambda i: f"{i}. {name()}\n",
    "switch": lambda i: f'    case {i}:\n        return "{name()}";\n',
    "tests": lambda i: f"def test_{name()}():\n    assert parse('{name()}') == {R.randint(0, 99)}\n\n",
    "html": lambda i: f"<tr><td>{i}</td><td>{R.choice(NAMES)}</td><td>{R.randint(1, 99)}</td></tr>\n",
    "seats": lambda i: f"Row {i // 8 + 1}, seat {i % 8 + 1}: {R.choice(NAMES)}\n",
    "budget": lambda i: f"Month {i}: interest {900 - 2.4 * i:.2f}, balance {150_000 - 310 * i - 0.9 * i * i:,.2f}\n",
    "wide table": lambda i: f"{R.choice(NAMES):<70}{R.choice(THINGS):<70}{R.randint(1, 99):<60}\n",
    "assembly": lambda i: f"    mov r{R.randint(0, 9)}, [r{R.randint(0, 9)}+{4 * R.randint(0, 20)}]\n",
    "sources": lambda i: f"[{i}] {R.choice(NAMES)}. On the {R.choice(THINGS)}. {R.randint(1950, 2025)}.\n",
}

ENDLESS: dict[str, Callable[[int], str]] = {
    "counted lines": lambda i: f'{i}. lookup("x") gave: Y\n',
    "counted down": lambda i: f"{9000 - i} bottles of milk on the wall, {9000 - i} bottles of milk.\n",
    "counted by ten": lambda i: f"Pages {10 * i - 9}-{10 * i}: nothing of use.\n",
    "in a sentence": lambda i: f"I have now checked the result {i} times and it is still the same. ",
    "two lines": lambda i: f"Step {i}: I look it up.\nResult {i}: nothing found.\n",
    "turns": lambda i: f"Thought {i}: Once more.\nAction {i}: search[Lyon]\nObservation {i}: Could not find Lyon.\n",
    "and": lambda i: f"and then the number {i}, ",
    "reasoning": lambda i: f"Wait, let me check again ({i}).\n",
    "words in turn": lambda i: f"{['Wait', 'Hmm', 'Well'][i % 3]}, let me check that once more ({i}).\n",
    "case": lambda i: [str.lower, str.upper, str.title][i % 3]("let me check again.\n"),
    "dates": lambda i: f"On {DAY + timedelta(i)} the shop was closed.\n",
    "dates in words": lambda i: f"{DAY + timedelta(i):%B %d, %Y}: the shop was closed.\n",
    "times": lambda i: f"{START + timedelta(seconds=i)} waiting for the result\n",
    "tenths": lambda i: f"At {i / 10:.1f} s the ball is still at rest.\n",
    "objects": lambda i: f'{{"id": {i}, "name": "Item {i}"}},\n',
    "objects in lines": lambda i: json.dumps({"id": i, "name": f"User {i}", "mail": f"user{i}@example.com"}, indent=1),
    "calls": lambda i: f'<tool_call>\n{{"name": "lookup", "arguments": {{"key": "Zarnia {i}"}}}}\n</tool_call>\n',
    "code": lambda i: f"def step_{i}(x):\n    y = step_{i - 1}(x)\n    return y + 1\n\n",
    "branches": lambda i: f"    if x == {i}:\n        return table[{i}]\n",
    "rows": lambda i: f"| {i} | Lyon | France | unknown |\n",
    "items": lambda i: f"- item {i}: nothing to be said of it, as of all the others\n",
    "addresses": lambda i: f"https://example.com/page/{i}\n",
    "two counters": lambda i: f"Row {i} of block {117 + i} is empty.\n",
    "indented": lambda i: "  " * i + "return lookup(x)\n",
    "quoted": lambda i: "> " * i + "He said so.\n",
    "nested": lambda i: "f(" * i + "x" + ")" * i + "\n",
    "very": lambda i: f"This is {'very ' * i}good.\n",
    "growing list": lambda i: f"So far I have {', '.join(f'item {k}' for k in range(1, i + 1))}.\n",
    "nested speech": lambda i: 'He said: "She said: "',
    "Chinese": lambda i: f"第{i}次检查：结果还是一样。\n",
    "blocks": lambda i: (
        f"## Attempt {i}\n\n" + " ".join(f"I look at the {thing} now." for thing in THINGS * 2) + "\n\n"
    ),
}


def long_text(line: Callable[[int], str], length: int) -> str:
    text = ""
    for i in count(1):
        if len(text) >= length:
            break
        text += line(i)
    return text


def in_pieces(text: str, cut: CircleCut) -> str:
    found, at = "", 0
    while at < len(text):
        step = R.choice([1, 3, 40, 700, 5000])
        found += cut.feed(text[at : at + step])
        at += step
    return found


KINDS = {"text": {}, "reasoning": {"lengths": (LONG,)}, "input": {"lengths": (LONG,), "may_be_data": True}}


@for_each("what", GOOD)
def test_a_long_text_in_which_each_line_says_something_is_not_cut(what: str) -> None:
    R.seed(what)
    text = long_text(GOOD[what], LENGTH)
    for options in KINDS.values():
        cut = CircleCut(**options)  # type: ignore[arg-type]
        assert cut.feed(text) == text and not cut.found


@for_each("what", ENDLESS)
def test_a_text_that_never_ends_is_cut_within_1000_tokens(what: str) -> None:
    R.seed(what)
    begin = "This is how it begins, which is not yet a repetition of anything. " * 2
    text = begin + long_text(ENDLESS[what], 9_000)
    for kind, options in KINDS.items():
        cut = CircleCut(**options)  # type: ignore[arg-type]
        found = cut.feed(text)
        assert cut.found and len(found) - len(begin) <= 4_000, kind
        again = CircleCut(**options)  # type: ignore[arg-type]
        assert in_pieces(text, again) == found and again.found


def test_numbered_calls_are_cut_before_their_thousandth_token() -> None:
    """The line of the embedded model that wrote for ten minutes: its tokenizer makes 11.93 tokens of each."""
    found = CircleCut().feed(long_text(ENDLESS["counted lines"], 9_000))
    assert found.count("\n") * 11.93 < 1000


LEFT: dict[str, Callable[[int], str]] = {
    "counters with other steps": lambda i: f'{{"id": {i}, "name": "Item {i}", "price": {10 * i}}},\n',
    "words at random": lambda i: f"{R.choice(['Wait', 'Hmm', 'Well'])}, let me check that once more ({i}).\n",
    "letters and numbers": lambda i: f"x{i} = x{i - 1} + 1\n",
}


@pytest.mark.parametrize("what", LEFT)
def test_what_cannot_be_told_from_a_table_is_left_to_the_token_limit(what: str) -> None:
    R.seed(what)
    cut = CircleCut()
    cut.feed(long_text(LEFT[what], 5_000))
    assert not cut.found


WIRES = [
    ("anthropic", "anthropic", "messages"),
    ("gemini", "google", "streamGenerateContent"),
    ("responses", "openai-responses", "responses"),
    *(("chat", folder, "chat/completions") for folder in ("groq", "mistral", "openai-chat", "openrouter", "deepseek")),
]


def test_no_recorded_reply_is_cut() -> None:
    """The episodes only in a campaign, because they take long to load."""
    for file in ("react-hotpotqa/episodes.jsonl.gz", "react-fever/episodes.jsonl.gz", "code-gsm8k/responses.jsonl.gz"):
        data_file(file)
    texts = [*(DATA / "repl-logs").glob("*.txt")]
    replies = [part for text in texts for part in text.read_text().split("\nOBSERVATION")]
    for wire, folder, path in WIRES:
        for _, exchange in recorded(folder, path=path):
            if exchange["status"] == 200:
                reply = decoded(exchange, model_of(exchange, wire))
                replies += [reply.text, reply.reasoning]
                assert reply.finish != "circle"
    if CAMPAIGN:
        episodes = [
            *hotpotqa(DATA / "react-hotpotqa/episodes.jsonl.gz"),
            *fever(DATA / "react-fever/episodes.jsonl.gz"),
        ]
        replies += [reply for episode in episodes for reply in episode.replies]
    assert len(replies) > 100
    for reply in replies:
        cut = CircleCut()
        found = cut.feed(reply)
        # Two of the 5,912 replies of the episodes are circles, of two lines in turn.
        assert not cut.found or found.count(found[-300:]) >= 4, reply


def test_a_hostile_text_is_searched_once() -> None:
    """The work does not grow with the square of the length: each check reads a fixed number of characters."""
    read = 0

    class Counted(CircleCut):
        def _is_circle(self) -> bool:
            nonlocal read
            read += len(self._end)
            return super()._is_circle()

    text = "".join("".join(row) + "\n" for row in product("ab ", repeat=9))[:60_000]
    Counted().feed(text)
    assert read <= len(text) * LONG / 256
