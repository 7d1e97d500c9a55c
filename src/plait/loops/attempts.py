"""Further attempts at a turn: what the request for another reply changes, so that it equals no earlier one.

At temperature 0 a model gives the same reply to the same request. The first repair changes the prompt: it shows the bad
reply and what is wrong with it. If a reply comes again, the next request does not show it, says so, and raises the
temperature. The third of them, or the last request, also changes the format, if the loop has another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from plait.core import Message, user
from plait.loops.transcript import with_repair


@dataclass(frozen=True)
class Bad:
    """A reply that could not be used, and what is wrong with it.

    `note` is what the next request says if the reply came before. `resample` and `reform`: from that request on, the
    temperature is raised, or the format is another one.
    """

    reply: str
    complaint: str
    note: str = ""
    resample: bool = False
    reform: bool = False

    def ask_again(self, request: str, reply: str | None = None) -> tuple[Message, ...]:
        """Return the bad reply (or `reply`, as the loop shows it), and what is asked of the model now."""
        if self.note:  # a model copies what it sees of itself
            return (user(f"{request.rstrip()}\n\n{self.note}"),)
        shown = self.reply if reply is None else reply
        return with_repair(shown if shown.strip() else "", request)


class Attempts:
    """The replies to one turn that could not be used. After `most` of them the loop gives up (0: it does not)."""

    def __init__(self, most: int = 0) -> None:
        self._most, self._repeats, self._reform = most, 0, False
        self._seen: list[tuple[str, str]] = []

    def reject(self, reply: str, complaint: str) -> Bad:
        """Return what the request after this reply changes. `reply` is what a request shows of it."""
        note, made = "", len(self._seen) + 1
        if (reply, complaint) in self._seen:
            self._repeats += 1
            note = f"None of your last {made} replies could be used. Write something else."
        self._seen.append((reply, complaint))
        self._reform |= self._repeats > 1 or (self._repeats > 0 and made == self._most - 1)
        return Bad(reply, complaint, note, resample=self._repeats > 0, reform=self._reform)
