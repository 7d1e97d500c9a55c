"""How the server finds the conversation that a request continues, and the question that its last message answers.

A client of chat completions sends the whole conversation each time, without a name. So the label of each run has a key
made of all messages up to its question. A request continues the session of the run with its key, if the later messages
are exactly what the run said and the session has no later turn. Any other request starts a session, with its earlier
messages as history.

A message answers the question whose id it names, or that the message before it asks. An answer that arrives twice or
late is refused. If the question was answered elsewhere, such as in the viewer, other words are the next turn, and the
model sees how the run ended. In a session that the client named, a message may come without the earlier ones; an
approval then needs the id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct, convert, structs

from plait.core import Exchange, Waiting
from plait.core.errors import StaleAnswer, UnknownRun
from plait.journal.entries import Question
from plait.journal.keys import QUESTION_ID_LENGTH
from plait.journal.open_questions import find_open_questions, read_questions
from plait.journal.owner import new_run_id
from plait.journal.records import LastTurn, RunRow
from plait.journal.results import Results
from plait.journal.run_query import RunQuery
from plait.journal.served_runs import RunLabel
from plait.journal.store import Journal, wait_for
from plait.loops.plan import NO, YES
from plait.runtime.answers import EDITED
from plait.runtime.approvals import waiting_with, without_id
from plait.runtime.conversations.chat_messages import GivenTurns
from plait.server.auth import Caller
from plait.server.chat_format import ChatMessage, answer_text, question_text
from plait.server.conversation_record import read_conversation, read_history, read_notes
from plait.server.errors import RequestRejected
from plait.server.recorded_reply import list_answered
from plait.server.runs import agent_name

TURNS_BACK = 12
"""Number of earlier turns in which the run of a long exchange is searched."""
QUESTION_ID = re.compile(rf"(?<!\w)[a-z2-7]{{{QUESTION_ID_LENGTH}}}(?!\w)", re.IGNORECASE)


class ConversationState(Struct, frozen=True):
    """The session that a request continues, by its name in the journal, and the run that waits for its message.

    `is_known`: the session exists. `waiting_run` is "" if none waits, `waiting_agent` is the served agent of that run,
    `waiting_question` is what it asks. `answered` is the question that the conversation's messages show as the last
    one. `given` are the turns before the run that the request continues, `unseen` is what the run said later than the
    client has it. `history` are the turns that the message is to see, if they are not just the session's own. `last` is
    the session's last turn.
    """

    session: str
    waiting_run: str = ""
    is_known: bool = False
    waiting_agent: str = ""
    answered: str = ""
    waiting_question: str = ""
    given: tuple[Exchange, ...] = ()
    unseen: str = ""
    last: LastTurn = LastTurn()
    history: GivenTurns | None = None


LOOK_BACK = 1000
"""The number of a client's last runs whose answers are known as clean."""


def conversation_key(messages: Sequence[ChatMessage]) -> str:
    """Return a key for a conversation up to here. Ignores spaces around a message, because clients trim them."""
    text = msgspec.json.encode(
        [(each.role, each.text.strip(), *(file.attachment.digest for file in each.files)) for each in messages]
    )
    return hashlib.sha256(text).hexdigest()[:32]


def new_conversation(caller: Caller) -> ConversationState:
    """Return the state of a new conversation, with a new name."""
    return ConversationState(caller.session(f"chat-{new_run_id()}"))


def find_session(journal: Journal, session: str) -> ConversationState:
    """Return the state of a named session. If its last turn waits for the user, the message answers it. Blocking."""
    last = LastTurn.of(journal.turns(session, limit=1))
    if not last.run:
        return ConversationState(session)
    row, store = journal.run(last.run), journal.store
    if row.status == "waiting":
        return structs.replace(state_of(row), last=last)
    # Without notes, the turns are just the session's own runs.
    has_notes = wait_for(read_notes(store, [session]))
    history = wait_for(read_history(store, wait_for(read_conversation(store, session)))) if has_notes else None
    return ConversationState(session, is_known=True, last=last, history=history)


def find_after(journal: Journal, caller: Caller, row: RunRow, part: int, message: str) -> ConversationState:
    """Return the state in which a message follows a part of a run (see `recorded_reply`). If the session has gone on
    since, another one begins with the turns up to that run. Blocking. Raises `StaleAnswer` if the message answers a
    question that is answered."""
    head, answered = row.head, wait_for(list_answered(journal.store, row.head.run))
    if row.status == "waiting" and part >= len(answered):
        return structs.replace(state_of(row), answered=(row.outcome or {}).get("question", ""))
    if part < len(answered) and (row.status == "waiting" or _reads_as_reply(message, answered[part][1])):
        waits = [convert(row.outcome, Waiting)] if row.status == "waiting" else []
        raise StaleAnswer("What this message answers was answered before.", run=head.run, waits=waits)
    if head.session and not head.parent and _is_last_turn(journal, row):
        return find_session(journal, head.session)
    answer = (row.outcome or {}).get("answer")
    last = Exchange(head.question, answer_text(answer) if answer is not None else "", attachments=head.attachments)
    is_clean = not row.totals.get("guards", {}).get("taint")
    turns = GivenTurns((*(head.given or head.history), last), is_clean, journal.contents(head.files))
    return structs.replace(new_conversation(caller), history=turns)


def state_of(row: RunRow) -> ConversationState:
    """Return the state in which a message answers this run."""
    agent, question = agent_name(row.head), str((row.outcome or {}).get("question", ""))
    session, run = row.head.session, row.head.run
    return ConversationState(session, run, is_known=True, waiting_agent=agent, waiting_question=question)


def check_turns(journal: Journal, caller: Caller, earlier: GivenTurns, state: ConversationState) -> GivenTurns:
    """Return the earlier turns that a client sent, as far as they are on record as recorded, with whether all of them
    hold nothing from outside: those of a session of the caller (its runs know what they read), and what clean runs
    said. Blocking."""
    clean: set[str] = set()
    turns, recorded = list(earlier.turns), state.given
    if [each.question for each in recorded] == [each.question for each in turns[: len(recorded)]]:
        turns[: len(recorded)] = recorded
    if state.unseen:
        turns[-1] = structs.replace(turns[-1], answer=f"{turns[-1].answer}\n\n{state.unseen}")
    if earlier.turns and not state.is_known:
        label = str(RunLabel(caller.owner, "")).removesuffix(":")
        rows = journal.find(RunQuery(label=label, limit=LOOK_BACK))
        said = {
            (answer_text(answer).strip(), bool(row.totals.get("guards", {}).get("taint")))
            for row in rows
            if (answer := (row.outcome or {}).get("answer")) is not None
        }
        clean = {text for text, is_tainted in said if not is_tainted and (text, True) not in said}
    # A run never returned calls to a client, so the client has them from elsewhere.
    is_proven = all(
        not turn.calls and (state.is_known or not turn.answer or turn.answer.strip() in clean) for turn in earlier.turns
    )
    return structs.replace(earlier, turns=tuple(turns), is_proven=is_proven, after_turn=state.last)


def check_agent(state: ConversationState, agent: str) -> None:
    """Raise `RequestRejected` if another agent waits: words for one agent must not approve another one's call."""
    if state.waiting_run and state.waiting_agent not in ("", agent):
        question = f" with question {state.waiting_question}" if state.waiting_question else ""
        text = f"In this session '{state.waiting_agent}' waits for an answer{question}, and this is for '{agent}'."
        hint, code = f"Answer with '{state.waiting_agent}', or name another session.", "other_agent_waits"
        raise RequestRejected(409, text, hint=hint, code=code, param="model", may_retry=False)


def find_answered_question(journal: Journal, state: ConversationState, messages: Sequence[ChatMessage]) -> str | None:
    """Return the id of the question that the last message answers; None if no run waits. Blocking. Raises `StaleAnswer`
    for a message that names, or follows, a closed question, and for one that names none while an approval is open."""
    text = messages[-1].text
    # A short message, such as an approval, may name a question of a run that no longer waits.
    may_name = state.is_known and len(text.split()) <= 12 and QUESTION_ID.search(text) is not None
    run = state.waiting_run or (LastTurn.of(journal.turns(state.session, limit=1)).run if may_name else "")
    if not run or state.answered:
        return state.answered or None
    still_open = wait_for(find_open_questions(journal.store, run)) if state.waiting_run else []
    asked = wait_for(read_questions(journal.store, run))
    found = [each for each in asked if without_id(text, each.question) is not None]
    if not state.waiting_run and not found:
        return None
    if not found and len(messages) > 1:
        found = [each for each in asked if _is_asked_in(each, messages[-2].text)]
    if not found and [each.kind for each in still_open] == ["question"]:
        found = still_open  # a reply for the model approves no call, so it need not name the question
    if found and found[-1] in still_open:
        return found[-1].question
    stale = StaleAnswer(
        f"Question {found[-1].question} was answered before." if found else "The message names no question.",
        run=run,
        waits=[waiting_with(each) for each in still_open],
    )
    for each in still_open[:1]:
        id = each.question
        ways = f"yes {id} (approve), no {id} and why (refuse), or edit {id} and the input as JSON (change)"
        stale.hint += f" Reply: {ways if each.kind == 'approval' else f'{id} and the answer'}."
    raise stale


def find_by_messages(
    journal: Journal, caller: Caller, agent: str, messages: Sequence[ChatMessage]
) -> ConversationState | None:
    """Find the conversation that the messages continue; None if there is none. Blocking. Raises `StaleAnswer` if the
    last message answers a question that is already answered."""
    # The end of each question before the last one, the newest first.
    ends = range(len(messages) - 2, max(0, len(messages) - 2 * TURNS_BACK), -2)
    labels = {str(RunLabel(caller.owner, agent, conversation_key(messages[:end]))): end for end in ends}
    try:
        found = wait_for(Results(journal.store).find_runs(labels))
    except UnknownRun:  # there is no journal yet
        return None
    for label, end in labels.items():
        since = [each.text.strip() for each in messages[end:]]
        for row in found.get(label, ()):
            unseen = _find_unseen(journal, row, since[:-1], since[-1])
            if unseen is not None and _is_last_turn(journal, row):
                question = (row.outcome or {}).get("question", "")
                known = {"answered": question, "given": row.head.given or row.head.history, "unseen": unseen}
                known["last"] = LastTurn.of(journal.turns(row.head.session, limit=1))
                return structs.replace(state_of(row), waiting_run=row.head.run if question else "", **known)
    return None


def _find_unseen(journal: Journal, row: RunRow, since: Sequence[str], message: str) -> str | None:
    """Return what a run said after `since`, its texts and the user's in turn, and before `message`: "" for nothing,
    None if something else was said. Raises `StaleAnswer` if the message answers a question that is answered."""
    outcome = row.outcome or {}
    if row.head.parent or not row.head.session:
        return None
    answer = [] if outcome.get("answer") is None else [answer_text(outcome["answer"]).strip()]
    if answer and list(since) == answer:
        return ""  # it asked nothing, so its rows need not be read
    answered = [each for each in wait_for(read_questions(journal.store, row.head.run)) if each.answer is not None]
    if not all(_is_reply(text, question) for text, question in zip(since[1::2], answered, strict=False)):
        return None
    still_open = [convert(outcome, Waiting)] if row.status == "waiting" else []
    questions: list[Question | Waiting] = [*answered, *still_open]
    shown = [*(question_text(each).strip() for each in questions), *answer]
    count = len(since[::2])
    if not count or count > len(shown) or list(since[::2]) != shown[:count]:
        return None
    if count == len(shown) and (still_open or answer):
        return ""
    if answer and not _reads_as_reply(message, answered[count - 1]):
        return answer[0]  # the question was answered elsewhere
    hint = "That run has ended. Say something else to continue the conversation." if answer else None
    raise StaleAnswer("What this message answers was answered before.", run=row.head.run, waits=still_open, hint=hint)


def _reads_as_reply(text: str, question: Question) -> bool:
    """Return whether a text can be an answer to a question that is answered: it names the question, approves, refuses
    or edits, or is the recorded answer."""
    answer = question.answer if isinstance(question.answer, str) else getattr(question.answer, "text", "")
    is_decision = text.lower().rstrip(".!") in (*YES, *NO) or EDITED.fullmatch(text) is not None
    return is_decision or text == answer.strip() or without_id(text, question.question) is not None


def _is_reply(text: str, question: Question) -> bool:
    """Return whether the client's text is the recorded reply. An approval is known by its question's id."""
    answer = question.answer
    return not isinstance(answer, str) or answer.strip() in (text, without_id(text, question.question))


def _is_last_turn(journal: Journal, row: RunRow) -> bool:
    """Return whether nothing was said in the session after the run. Turns without a result do not count."""
    for turn in reversed(journal.turns(row.head.session, limit=TURNS_BACK)):
        if turn.run == row.head.run:
            return True
        if turn.answer is not None or journal.run(turn.run).status in ("waiting", "running"):
            return False
    return False


def _is_asked_in(question: Question, text: str) -> bool:
    return (bool(question.question) and question.question in text) or question_text(question).strip() == text.strip()
