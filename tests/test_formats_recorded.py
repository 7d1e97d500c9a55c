"""Published ReAct episodes, read reply by reply: what the environment did next is what the reader says."""

import gzip
import json
import re
import string
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from plait.core import ToolSpec
from plait.loops.format import Unreadable
from plait.loops.react.format import react_format

DATA = Path(__file__).parents[2] / "shared" / "data"
TOOLS = (ToolSpec("search", ""), ToolSpec("lookup", ""))


def episodes(name: str) -> list[dict]:
    path = DATA / name / "episodes.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent: the recorded episodes were NOT read")
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def hotpot_turns(trajectory: str | list) -> list[tuple[str, str]]:
    """(reply, observation) pairs of an episode, without the observation's label."""
    if isinstance(trajectory, list):
        pairs = pairwise(trajectory)
        return [
            (a["content"], b["content"].removeprefix("Observation: ")) for a, b in pairs if a["role"] == "assistant"
        ]
    turns = []
    reply, *rest = trajectory.split("### Response:\n", 1)[1].split("\nObservation:")
    for part in rest:
        observation, _, following = part.partition("\nThought:")
        turns.append((reply, observation.strip()))
        reply = f"Thought:{following}"
    return turns


def fever_turns(text: str) -> list[tuple[str, str]]:
    reply, *rest = re.split(r"\nObservation \d+: ", text.partition("\n")[2])
    turns = []
    for n, part in enumerate(rest, 2):
        observation, label, following = part.partition(f"\nThought {n}:")
        turns.append((reply, observation.strip()))
        reply = label.strip() + following
    return turns


def words(text: str) -> list[str]:
    """The usual normalisation of question-answering scores."""
    bare = "".join(char for char in text.lower() if char not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def f1(answer: str, gold: str) -> float:
    mine, theirs = words(answer), words(gold)
    special = {"yes", "no", "noanswer"}
    if " ".join(mine) != " ".join(theirs) and {" ".join(mine), " ".join(theirs)} & special:
        return 0.0
    same = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * same / (len(mine) + len(theirs)) if same else 0.0


NEVER_CLOSED = "search[what is Bob Marley known for?"
"""The one action without its bracket: its environment made it, Plait asks again."""
STRICT = re.compile(r"Thought: [^\n]*\nAction: (search|finish)\[[^\n]*\]\s*")


def test_hotpotqa_every_reply_is_read_and_gives_the_logged_scores():
    replies = strange = scored = asked_again = 0
    for episode in episodes("react-hotpotqa"):
        answer = ""
        for n, (reply, observation) in enumerate(hotpot_turns(episode["trajectory"]), 1):
            replies += 1
            try:
                turn = react_format("original").read(reply, n, TOOLS)
            except Unreadable as why:
                assert reply.strip().endswith(NEVER_CLOSED) and "search is never closed" in str(why)
                asked_again += 1
                continue
            strange += STRICT.fullmatch(reply) is None
            # The environment ends an episode exactly when the reader finds an answer.
            assert turn.answered == observation.startswith("Episode finished"), reply
            if turn.answered:
                answer = turn.answer
            elif found := re.match(r"\(['\"] ?(\w+)['\"], ", observation):
                assert turn.call.tool == found[1]  # the environment names a tool it does not know
        assert words(answer) == words(episode["pred"]), episode["id"]
        scored += (words(answer) == words(episode["gold"])) == episode["em"] and abs(
            f1(answer, episode["gold"]) - episode["f1"]
        ) < 1e-9
    assert (replies, strange, scored, asked_again) == (4662, 180, 1464, 1)


def test_hotpotqa_the_default_reader_cuts_what_runs_on_after_the_answer():
    other = []
    for episode in episodes("react-hotpotqa"):
        for n, (reply, observation) in enumerate(hotpot_turns(episode["trajectory"]), 1):
            try:
                turn = react_format("numbered").read(reply, n, TOOLS)
            except Unreadable:
                assert reply.strip().endswith(NEVER_CLOSED)
                continue
            assert turn.answered == observation.startswith("Episode finished")
            if turn.answered and words(turn.answer) != words(episode["pred"]):
                assert any(remark.kind == "cut" for remark in turn.remarks)
                assert "\nThought" not in turn.answer
                other.append(f1(turn.answer, episode["gold"]) - episode["f1"])
    # Five answers ran on into the next thought; for two of them that moved the score.
    assert len(other) == 5
    assert sum(abs(difference) > 1e-9 for difference in other) == 2


@pytest.mark.parametrize(("original", "right"), [(True, 270), (False, 271)])
def test_fever_every_action_is_read(original: bool, right: int):
    """270 as the environment read them; it refused one right answer, for standing on a later line."""
    reader = react_format("original" if original else "numbered")
    correct = replies = invalid = 0
    for episode in episodes("react-fever"):
        answer = ""
        for n, (reply, observation) in enumerate(fever_turns(episode["text"]), 1):
            turn = reader.read(reply, n, TOOLS)
            replies += 1
            assert turn.answered or turn.call is not None
            finished = observation.startswith("Episode finished")
            if original:
                assert turn.answered == finished, reply
            invalid += observation.startswith("Invalid action")
            if turn.answered:
                answer = turn.answer
                break
        correct += answer == episode["result"]["gt_answer"]
    assert correct == right
    assert replies == (1250 if original else 1246)
    assert invalid == (12 if original else 8)
