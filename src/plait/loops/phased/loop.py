"""Reason, react, act, reply: four phases; three of them ask a model, and each can have its own.

*Reason* says in words what is to be done. *React* chooses actions, as a JSON list. *Act* runs them, concurrently unless
one needs another's result. *Reply* is the only text that the user sees. All phases share one chat: the identity as
system message, each phase's prompt as the user's, its model's reply as the assistant's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from plait.core import (
    Answered,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    OneKind,
    Reply,
    Splitter,
    Step,
    Stopped,
    Task,
    check_answer,
    note,
)
from plait.loops.asking import BadReply, Rejected, ask_until_read
from plait.loops.format import Unreadable
from plait.loops.grounding import strike_values
from plait.loops.options import check_options
from plait.loops.phased import action_list
from plait.loops.phased.act import check_actions, run_actions
from plait.loops.phased.chat import PhasedChat
from plait.loops.tool_descriptions import offered_tools, tools_found


@dataclass(frozen=True)
class Phased:
    """Reason, react, act, reply.

    `rounds`: maximum rounds of reason, react and act; with more than one, the model says when all is done. After a
    failed action, or a result that is too long, there is one extra round, once. `most`: maximum actions of one list.
    `constrain`: send the JSON schema of the list with every request (otherwise only with a second attempt).
    `max_parse_errors`: replies without a readable list before the last one is used as text for the reply phase.
    `max_tokens`: limit for one reply.
    """

    rounds: int = 1
    most: int = action_list.MOST
    constrain: bool = False
    max_parse_errors: int = 2
    max_tokens: int | None = None

    name: ClassVar[str] = "phased"
    searches_history: ClassVar[bool] = True
    """The published set-up has the action that searches the conversation in every turn."""
    phases: ClassVar[tuple[str, ...]] = ("reason", "react", "reply")
    compacts: ClassVar[bool] = True
    reserved: ClassVar[tuple[str, ...]] = (action_list.BASIC,)

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        chat, rounds, objection = PhasedChat(task, context, self.max_tokens), self.rounds, ""
        try:
            while True:
                yield from self._reason_and_act(chat, max(1, rounds), objection)
                answer = yield from chat.reply("reply")
                if isinstance(answer, Failed):
                    return answer
                before, objection = objection, (yield from check_answer(answer))
                if not objection:
                    return Answered(answer)
                if before or not context.tools:
                    return Failed(objection)
                rounds = 1
        except LimitNear as limit:
            answer = yield from chat.reply("conclude", reason=limit.detail)
            return Stopped(limit.limit, limit.detail, None if isinstance(answer, Failed) else answer)

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought" if phase == "reason" else "action" if phase == "react" else "answer")

    def _reason_and_act(self, chat: PhasedChat, rounds: int, objection: str) -> Effects[None]:
        """Reason, react and act; `objection` is what speaks against an earlier reply."""
        done, retried = 0, False
        while done < rounds:
            name = "refused" if objection else "again" if done else "reason"
            thought = yield from chat.say("reason", name, complaint=objection)
            if not chat.context.tools or (done and action_list.says_done(thought)):
                return
            steps = yield from self._react(chat)
            if not steps:
                return
            failed = yield from run_actions(chat, steps)
            done, objection = done + 1, ""
            cut = bool(tools_found(chat.context.others, chat.notes))  # a note names the tool that reads a long result
            if (failed or cut) and done == rounds and not retried:
                # Only the reply phase would see the error or the note, and it has no actions.
                rounds, retried = rounds + 1, True
                why = f"action {', '.join(failed)} failed" if failed else "a result was too long to be shown"
                yield from note("again", f"{why}: the model reasons and reacts once more")

    def _react(self, chat: PhasedChat) -> Effects[tuple[Step, ...]]:
        """Return the actions that the model chooses; none if it wants none, or only talks."""
        prompt, context, checked = chat.prompt("react"), chat.context, False

        def ask(bad: BadReply | None) -> Effects[Reply]:
            held = self.constrain or bool(bad)
            schema = action_list.schema(offered_tools(context, chat.seen), self.most) if held else None
            return chat.ask_for_list(prompt, bad, self.most, schema)

        def read(reply: Reply, miss: int) -> Effects[tuple[Step, ...]]:
            nonlocal checked
            shown, counts = reply.text, True
            try:
                actions = action_list.read(reply.text, context.known_tools, self.most)
            except Unreadable as why:
                if miss >= self.max_parse_errors:
                    yield from note("unreadable", "no list of actions came: the text is taken for the reply phase")
                    chat.add(prompt, reply.text)
                    return ()
                against = str(why)
            else:
                against, found = yield from check_actions(chat, actions.steps)
                if checked or not against:
                    for remark in actions.remarks:
                        yield from note(remark.kind, remark.text)
                    chat.add(prompt, strike_values(actions.kept, found))
                    return actions.steps
                checked, shown, counts = True, strike_values(reply.text, found), False
            yield from note("unreadable", f"the list of actions can't be taken: {against}")
            raise Rejected(against, shown, counts=counts)

        return cast(tuple[Step, ...], (yield from ask_until_read(ask, read)))
