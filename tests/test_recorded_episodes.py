"""Episodes that other people's models and environments recorded, replayed through the loop."""

from __future__ import annotations

from conftest import data_file
from episodes import f1, fever, hotpotqa, normalized, play


def test_every_hotpotqa_episode_gives_the_logged_scores() -> None:
    episodes = hotpotqa(data_file("react-hotpotqa", "episodes.jsonl.gz"))
    agree = 0
    for episode in episodes:
        answer = str(play(episode, ("search", "lookup")).answer or "")
        em = normalized(answer) == normalized(episode.gold)
        agree += em == bool(episode.logged["em"]) and abs(f1(answer, episode.gold) - episode.logged["f1"]) < 1e-9
    assert (agree, len(episodes)) == (1464, 1464)


def test_every_fever_episode_is_read_and_270_of_500_are_right() -> None:
    episodes = fever(data_file("react-fever", "episodes.jsonl.gz"))
    right = read = actions = 0
    for episode in episodes:
        run = play(episode, ("Search", "Lookup"))
        unread = [row for row in run.record if getattr(row.record, "kind", "") == "unreadable"]
        actions += len(episode.replies)
        read += len(episode.replies) - len(unread)
        right += run.status == "answered" and run.answer == episode.gold
    assert (right, len(episodes)) == (270, 500)
    assert read == actions
