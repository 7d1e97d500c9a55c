"""The events of AG-UI: a part of a run as its client gets it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from plait.core import Call, Event, Waiting
from plait.core import events as ev
from plait.journal.codec import encode
from plait.journal.entries import Question, RecordedNote, ToolCall
from plait.journal.records import Decision
from plait.journal.store import read_timeline
from plait.server.agents import ServedAgent
from plait.server.chat_format import KINDS, usage_of
from plait.server.errors import RequestRejected
from plait.server.recorded_reply import Ending, ReplyFormat, interruption_of, list_answered
from plait.server.reply_pieces import ReplyPieces
from plait.server.runs import RunManager
from plait.tools.render import replace_surrogates
from plait.view.live import format_event

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

VERSION = "1.0"
TURNS = 200
"""Earlier turns of a thread that a client gets which has none."""
USAGE = {"inputTokens": "prompt_tokens", "outputTokens": "completion_tokens", "totalTokens": "total_tokens"}
APPROVAL = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "The whole new input of the call."},
        "reason": {"type": "string", "description": "Why not, or what to change."},
    },
    "required": ["approved"],
}


def error_event(error: RequestRejected) -> bytes:
    return format_event({"type": "RUN_ERROR", "message": str(error), "code": error.code or error.kind})


class AgUiFormat(ReplyFormat):
    """AG-UI. See `ReplyFormat`. `given` is the request.

    The ids of messages and calls begin with the run and the part. A client that asks again may have some of the part's
    messages. It gets a snapshot without them, then the whole part. A call that waits for approval has the id of its
    question, and the part that follows sends its result; so it does if a child run of the call has asked.
    """

    modalities = tuple(KINDS)

    def __init__(self, manager: RunManager, served: ServedAgent, given: RunAgentInput) -> None:
        self._manager, self._served, self._given, self._count = manager, served, given, 0
        self._ids = {"threadId": given.thread_id, "runId": given.run_id}
        self._kind = self._message = self._step = ""
        """The type and the id of the open message, and the open step; "" if none is open."""
        self._calls = list[tuple[Call, str]]()
        """The calls without a result, with their ids."""
        self._before = set[str]()
        """The ids of those that began in an earlier part."""
        self._named: Counter[str] = Counter()
        self._snapshot: list[dict[str, Any]] | None = None

    async def open(self, run: str, part: int | None = None) -> None:
        store = self._manager.journal.store
        row, self._answered = await store.find_run(run), await list_answered(store, run)
        is_again, self._part = part is not None, len(self._answered) if part is None else part
        self._run, self._prefix = run, f"{run}_{self._part}_"
        thoughts, typed = self._served.thoughts, row.head.settings.get("output") is not None
        self.pieces = ReplyPieces(self._served.agent, thoughts=thoughts, typed=typed, calls=False)
        # The record has inputs and results that a hook replaced.
        self._shows_calls = thoughts and not (is_again and row.head.settings.get("hooks"))
        self._state = row.head.metadata.get("state")
        if self._part:
            since, began = self._answered[self._part - 1][0], set[str]()
            for moment in (await read_timeline(store, run, bodies=False)).moments:
                match moment.change, moment.entry:
                    case _ if moment.at > since:
                        break
                    case _, RecordedNote(kind="state", value=value):
                        self._state = value
                    case "began", ToolCall(key=key, shown=call) if key not in began:
                        began.add(key)
                        part = sum(at < moment.at for at, _ in self._answered)
                        self._calls.append((call, self._name_call(call, part)))
                    case "ended", ToolCall(shown=call):
                        self._take_call(call)
            self._before = {id for _, id in self._calls}
        self._is_new_page = is_again and not self._given.messages
        if self._is_new_page:
            self._snapshot = []
            for turn in await store.list_turns(row.head.session, limit=TURNS):
                self._snapshot.append({"id": f"{turn.run}_question", "role": "user", "content": turn.question})
                if turn.run == run:
                    break
                if turn.answer is not None:
                    self._snapshot.append({"id": f"{turn.run}_answer", "role": "assistant", "content": turn.answer})
        elif is_again:
            self._snapshot = [each.model_dump(by_alias=True, mode="json") for each in self._given.messages]

    def begin(self) -> bytes:
        about = {"protocolVersion": VERSION, "metadata": {"plait": {"run": self._run}}}
        sent = self._event("RUN_STARTED", **self._ids, **about)
        if self._state is not None:
            sent += self._event("STATE_SNAPSHOT", snapshot=self._state)
        if self._snapshot is not None:
            has = [each for each in self._snapshot if not each["id"].startswith(self._prefix)]
            own = [each for each in self._snapshot if each["id"].startswith(self._prefix)]
            # A client keeps its reasoning unless a snapshot has some.
            has += [{**each, "content": ""} for each in own if each["role"] == "reasoning"]
            sent += self._event("MESSAGES_SNAPSHOT", messages=has)
        asked = self._answered[self._part - 1][1] if self._part else None
        if asked is not None and asked.call is not None and (asked.run != self._run or not self._shows_calls):
            # The client gets no result of the call itself.
            id = f"{self._run}_{self._part - 1}_{asked.question}"
            if self._is_new_page:
                sent += self._send_call(id, asked.call.tool, asked.call.input)
            match asked.answer:
                case Decision(action="yes"):
                    text = "Approved."
                case Decision(action="edit"):
                    text = f"Approved, with {encode(asked.edited_input).decode()}"
                case answer:
                    text = f"Refused. {getattr(answer, 'text', '')}".strip()
            sent += self._result(id, text)
        return sent

    def add(self, event: Event) -> bytes:
        reasoning, content = self.pieces.add(event)
        sent = self._close_message() if self.pieces.is_withdrawn else b""
        if reasoning and self._kind != "TEXT_MESSAGE":  # an answer that is being sent stays whole
            sent += self._write("REASONING_MESSAGE", reasoning)
        if content:
            sent += self._write("TEXT_MESSAGE", content)
        match event:
            case ev.Asked(step=step, phase=phase) if not phase.startswith("tool:"):
                sent += self._close_step()
                self._step = f"{step} {phase}".strip()
                sent += self._event("STEP_STARTED", stepName=self._step)
            case ev.Called(call=call) if self._shows_calls:
                sent += self._begin_call(call)
            case ev.Observed(call=call, observation=seen) if self._shows_calls:
                if (id := self._take_call(call)) is None:  # it was refused
                    sent += self._begin_call(call)
                    id = self._take_call(call)
                sent += self._result(id or "", replace_surrogates(seen.text))
            case ev.HostedCalled(call=made) if self._shows_calls:
                id = self._new_id()
                sent += self._send_call(id, f"{made.tool} {made.name}".strip(), made.input)
                sent += self._result(id, replace_surrogates("It failed: " * made.failed + made.text))
            case ev.Noted(kind="state", data=data):
                sent += self._change_state(data)
            case ev.Noted(kind="progress", text=text, data=data) if self.pieces.thoughts:
                value = {"text": replace_surrogates(text), "data": data}
                sent += self._event("CUSTOM", name="progress", value=value)
        return sent

    def end(self, ending: Ending) -> bytes:
        run, sent = ending.run, b""
        waits = run.outcome if run is not None and isinstance(run.outcome, Waiting) else None
        try:
            if ending.error is not None:
                raise ending.error
            # A question is not a part of the answer. Without a run, it was answered since.
            if run is not None and waits is None and (rest := self.pieces.rest(ending.content)):
                sent += self._write("TEXT_MESSAGE", rest)
        except RequestRejected as error:
            sent += self._close_step()
            if run is None or run.status != "cancelled":
                return sent + error_event(error)
            return sent + self._event("RUN_FINISHED", **self._ids, outcome={"type": "cancelled"})
        sent += self._close_step()
        if cited := self.pieces.annotate(ending.content):
            sent += self._event("CUSTOM", name="citations", value=cited)
        if ending.files:
            sent += self._event("CUSTOM", name="files", value=ending.files)
        about: dict[str, Any] = {"outcome": {"type": "success"}}
        if waits is not None:
            interrupt: dict[str, Any] = {
                "id": waits.question,
                "message": replace_surrogates(waits.reason),
                "responseSchema": APPROVAL if waits.kind != "question" else {"type": "string"},
                "reason": "input_required" if waits.kind == "question" else "confirmation",
                "metadata": {"plait": {"kind": waits.kind, "tool": waits.tool, "input": waits.input}},
            }
            if waits.tool:
                interrupt |= {"reason": "tool_call", "toolCallId": f"{self._prefix}{waits.question}"}
                sent += self._send_call(interrupt["toolCallId"], waits.tool, waits.input)
            about["outcome"] = {"type": "interrupt", "interrupts": [interrupt]}
        elif run is not None:
            about |= {"result": run.answer, "metadata": {"plait": {"status": run.status, "reason": run.reason}}}
        if run is not None and not self._part:  # the later parts have no counts of their own
            used = usage_of(run)
            about["usage"] = [{name: used[ours] for name, ours in USAGE.items()}]
        return sent + self._event("RUN_FINISHED", **self._ids, **about)

    def abandon(self) -> bytes:
        return self._close_step() + error_event(interruption_of(self._run))

    def whole(self, ending: Ending | None) -> dict[str, Any]:
        raise NotImplementedError("AG-UI answers by streams only.")

    # -- messages, steps and calls

    def _event(self, kind: str, **fields: Any) -> bytes:
        return format_event({"type": kind, **fields})

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def _write(self, kind: str, text: str) -> bytes:
        """Add text to the open message; opens one of that type if need be."""
        sent = b""
        if self._kind != kind:
            sent, self._kind, self._message = self._close_message(), kind, self._new_id()
            is_answer = kind == "TEXT_MESSAGE"
            sent += b"" if is_answer else self._event("REASONING_START", messageId=self._message)
            role = "assistant" if is_answer else "reasoning"
            sent += self._event(f"{kind}_START", messageId=self._message, role=role)
        return sent + self._event(f"{kind}_CONTENT", messageId=self._message, delta=text)

    def _close_message(self) -> bytes:
        if not (kind := self._kind):
            return b""
        self._kind, sent = "", self._event(f"{kind}_END", messageId=self._message)
        return sent + (b"" if kind == "TEXT_MESSAGE" else self._event("REASONING_END", messageId=self._message))

    def _close_step(self) -> bytes:
        step, self._step = self._step, ""
        return self._close_message() + (self._event("STEP_FINISHED", stepName=step) if step else b"")

    def _begin_call(self, call: Call) -> bytes:
        """Send a call, unless the client has it: it waited for approval, or its child run did."""
        id = next((id for known, id in self._calls if known == call and id in self._before), None)
        if id is not None:
            self._before.remove(id)
        else:
            id = self._name_call(call, self._part)
            self._calls.append((call, id))
        is_new = self._is_new_page or id.startswith(self._prefix)
        return self._send_call(id, call.tool, call.input) if is_new else b""

    def _take_call(self, call: Call) -> str | None:
        """Return the id of a call that ends; None for one that did not begin."""
        at = next((i for i, (known, _) in enumerate(self._calls) if known == call), None)
        return None if at is None else self._calls.pop(at)[1]

    def _name_call(self, call: Call, part: int) -> str:
        """Return the id of a call that begins in a part: that of the question, if it waited for approval, perhaps with
        another input."""
        id = f"{self._run}_{part}_{hashlib.sha256(encode(call)).hexdigest()[:12]}"
        match self._answered[part - 1][1] if part else None:
            case Question(run=self._run, call=Call(tool=call.tool, input=given), answer=answer) as asked:
                inputs = (given, asked.edited_input, answer.value if isinstance(answer, Decision) else None)
                approved = f"{self._run}_{part - 1}_{asked.question}"
                if encode(call.input) in map(encode, inputs) and not self._named[approved]:
                    id = approved
        self._named[id] += 1
        return id if self._named[id] == 1 else f"{id}_{self._named[id]}"

    def _send_call(self, id: str, tool: str, input: Any) -> bytes:
        given = encode(input if input is not None else {}).decode()
        sent = self._close_message() + self._event("TOOL_CALL_START", toolCallId=id, toolCallName=tool)
        sent += self._event("TOOL_CALL_ARGS", toolCallId=id, delta=given)
        return sent + self._event("TOOL_CALL_END", toolCallId=id)

    def _result(self, call: str, text: str) -> bytes:
        fields = {"messageId": self._new_id(), "toolCallId": call, "content": text, "role": "tool"}
        return self._close_message() + self._event("TOOL_CALL_RESULT", **fields)

    def _change_state(self, new: Any) -> bytes:
        """Send the new state: what changed in it, if the client has an object."""
        old, self._state = self._state, new
        if not isinstance(old, dict) or not isinstance(new, dict):
            return self._event("STATE_SNAPSHOT", snapshot=new)
        delta: list[dict[str, Any]] = [{"op": "remove", "path": _pointer(name)} for name in old if name not in new]
        changed = [name for name in new if name not in old or encode(old[name]) != encode(new[name])]
        delta += [{"op": "add", "path": _pointer(name), "value": new[name]} for name in changed]
        return self._event("STATE_DELTA", delta=delta) if delta else b""


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
