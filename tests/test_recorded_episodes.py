"""Episodes that other people's models and environments recorded, replayed through the loop."""

from __future__ import annotations

from conftest import CAMPAIGN, data_file
from episodes import fever, hotpotqa, play
from plait.lab import SuiteTask, load_grader


async def test_hotpotqa_episodes_give_the_logged_scores() -> None:
    episodes = hotpotqa(data_file("react-hotpotqa", "episodes.jsonl.gz"))
    assert len(episodes) == 1464
    played = episodes[:: 1 if CAMPAIGN else 10]
    judge = load_grader("f1")
    agree = 0
    for number, episode in enumerate(played):
        run = play(episode, ("search", "lookup"))
        grade = await judge(SuiteTask(id=str(number), question=episode.question, answer=episode.gold), run)
        em, f1 = grade.measures["em"], grade.measures["f1"]
        agree += em == float(episode.logged["em"]) and abs(f1 - episode.logged["f1"]) < 1e-9
    assert agree == len(played)


def test_every_fever_episode_is_read_and_270_of_500_are_right() -> None:
    episodes = fever(data_file("react-fever", "episodes.jsonl.gz"))[:: 1 if CAMPAIGN else 5]
    right = read = actions = 0
    for episode in episodes:
        run = play(episode, ("Search", "Lookup"))
        unread = [row for row in run.trace if getattr(row.record, "kind", "") == "unreadable"]
        actions += len(episode.replies)
        read += len(episode.replies) - len(unread)
        right += run.status == "answered" and run.answer == episode.gold
    assert (right, len(episodes)) == ((270, 500) if CAMPAIGN else (58, 100))
    assert read == actions
