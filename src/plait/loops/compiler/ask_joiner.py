"""Asks the joiner to answer from the results, or to say what a further plan has to find out."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from plait.core import Effects, Failed, LoopContext, Message, Reply, Think, check_output, think
from plait.loops.compiler.joiner import JOINER, Verdict
from plait.loops.compiler.pages import Pages, Round
from plait.loops.format import Unreadable
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, read_turn

if TYPE_CHECKING:
    from plait.loops.compiler.loop import LLMCompiler


def ask_joiner(
    loop: LLMCompiler, context: LoopContext, pages: Pages, rounds: list[Round], last: bool, chars: int
) -> Effects[Verdict | Failed]:
    """Return the joiner's decision; after the `last` plan, an answer or why there is none."""
    missing = ""
    unfit: tuple[Message, ...] = ()  # answers that do not fit the output, each with the objection

    def ask(bad: Bad | None) -> Effects[Reply]:
        tail = with_repair(bad[0], context.prompt("join_repair", complaint=bad[1], last=last)) if bad else ()
        messages = (*pages.join(rounds, chars, last=last), *unfit, *tail)
        grammar = JOINER.grammar(last=last) if loop.constrain or bad else None
        return think("join", messages, grammar=grammar, max_tokens=loop.max_tokens, repair=bool(bad or unfit))

    def read(text: str) -> Verdict:
        nonlocal missing
        verdict = JOINER.read(text)
        if last and verdict.kind == "replan":
            missing = verdict.text
            raise Unreadable("There will be no further plan. Finish with what the results say.")
        rounds[-1].said = text
        return verdict

    while True:
        verdict = yield from read_turn(ask, read, loop.max_parse_errors)
        if isinstance(verdict, Failed) or verdict.kind == "replan":
            break
        if not (against := (yield from check_output(verdict.text))):
            break
        unfit = (*unfit, *with_repair(rounds[-1].said, against))
    if missing and isinstance(verdict, Failed):
        return Failed(f"No further plan was allowed, and this was still missing: {missing}")
    return verdict


def conclude(loop: LLMCompiler, pages: Pages, rounds: list[Round], reason: str, chars: int) -> Effects[str | None]:
    """Return the answer when one model call is left; None if the joiner decides nothing, or asks for more."""
    asked = Think("join", pages.conclude(rounds, chars, reason), max_tokens=loop.max_tokens, repair=True)
    reply = cast(Reply, (yield asked))
    try:
        verdict = JOINER.read(reply.text)
    except Unreadable:
        return None
    return verdict.text if verdict.kind == "finish" else None
