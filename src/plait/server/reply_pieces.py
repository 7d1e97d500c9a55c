"""The events of a run as pieces of reasoning and of content, for the formats of clients."""

from __future__ import annotations

from math import inf
from typing import Any
from urllib.parse import quote

from plait.agent import Agent
from plait.core import Event, OneKind, traits_of
from plait.core import events as ev
from plait.core.hosted import Citation
from plait.core.text import show_hidden
from plait.journal.codec import encode
from plait.loops import OURS, splitter_of
from plait.runtime.calls.artifacts import find_artifacts
from plait.server.errors import RequestRejected
from plait.tools.render import replace_surrogates

_SAFE = "%:/?#[]@!$&'()*+,;=~"
PREFACE = 200
"""Characters: models that call a tool often write a sentence before the call."""


class ReplyPieces:
    """Turn the events of a run into pieces of reasoning and of content. `thoughts` False: no reasoning. `calls` False:
    reasoning has no calls, because the client gets them in another form; code stays. `agent` None: nobody knows it.

    Reasoning is sent as it arrives. Content cannot be withdrawn. So an answer is streamed only if nothing checks
    answers afterwards (no grounding, no output type), it is the first attempt, and the phase's reply is only the
    answer. In tool calling, text is the answer unless calls follow: it is streamed after `PREFACE` characters, or at
    once without tools; what is held back of a thought is reasoning. Other answers are sent at the end of the run, and
    all if not `streams`; `rest` returns what is missing.
    """

    def __init__(
        self, agent: Agent | None, *, thoughts: bool, typed: bool = False, streams: bool = True, calls: bool = True
    ) -> None:
        self._loop = agent._loop if agent is not None else None
        self.thoughts, self._tells_calls = thoughts, thoughts and calls
        self._tells_actions = thoughts and (calls or traits_of(self._loop).runs_code)
        # A loop of another package may add text after something that looked like its answer.
        is_checked = typed or agent is None or agent.grounding != "off" or agent.output is not str
        self._is_sure = not is_checked and agent is not None and agent._loop.name in OURS
        self._phase = ""
        self._live_step = 0
        """The step whose reply is sent as content; 0: none yet, -1: none any more."""
        self._sent = self._held = self._preface = ""
        self._is_preview = False
        """The live step's text is the answer unless calls follow."""
        self._max_preface = inf if not (self._is_sure and streams) else PREFACE if agent is None or agent.tools else 0
        self._last = ("", 0)
        self._calls = 0
        self.has_files = False
        """Whether tools may have returned files."""
        self.citations: tuple[Citation, ...] = ()
        """The web pages that the last reply cites."""
        self.is_withdrawn = False
        """Whether the last event was a call or a thought after text that was sent as content."""

    def add(self, event: Event | None) -> tuple[str, str]:
        """Return what an event adds: (reasoning, content), each "" for nothing."""
        self.is_withdrawn, held, is_thought = False, "", isinstance(event, ev.Marked) and event.kind == "thought"
        if self._is_preview and (is_thought or isinstance(event, ev.Thought | ev.Action | ev.Asked)):
            held = self._separate("thought", self._live_step, self._preface) if self.thoughts else ""
            self.is_withdrawn = bool(self._sent)
            self._live_step, self._is_preview, self._sent, self._held, self._preface = 0, False, "", "", ""
        match event:
            case ev.Asked(phase=phase):
                self._phase = phase
            case ev.Began(resumed=resumed):
                self.has_files = resumed
            case ev.Observed(observation=seen):
                self.has_files = self.has_files or bool(find_artifacts(seen.value))
            case ev.Action() if not self._tells_actions:
                return held, ""
            case ev.Thought(step=step, text=text) | ev.Action(step=step, text=text) if self.thoughts:
                return held + self._separate(ev.kind_of(event), step, replace_surrogates(text)), ""
            case ev.Called(call=call) if self._tells_calls and self._last[0] != "action":  # no text of the model has it
                text = f"{call.tool} {encode(call.input).decode() if call.input is not None else ''}".rstrip()
                return held + self._add_call(text), ""
            case ev.HostedCalled(call=made) if self._tells_calls and not self._sent:
                return held + self._add_call(made.title), ""
            case ev.Replied(phase=phase, citations=cited) if not phase.startswith("tool:"):
                self.citations = tuple(each for each in cited if each.url.startswith(("https://", "http://")))
            case ev.Answer(step=step, text=text) if self._is_sure:
                return "", self._add_answer(step, replace_surrogates(text))
            case ev.Text(step=step, text=text):
                return "", self._add_text(step, replace_surrogates(text))
            case ev.Noted(kind="retry" | "model_change") if self._live_step > 0:
                self._live_step, self._preface = -1 if self._sent else 0, ""  # the reply starts again
        return held, ""

    def rest(self, content: str) -> str:
        """Return what is missing of the content. Raises `RequestRejected` if other content was sent."""
        if not content.startswith(self._sent):
            text, hint = "The run replaced the answer that was sent in part.", "The run's record has it whole."
            raise RequestRejected(500, text, hint=hint, kind="run_error", code="answer_changed", may_retry=False)
        return content[len(self._sent) :]

    def _add_call(self, text: str) -> str:
        self._calls += 1
        return self._separate("call", self._calls, replace_surrogates(text))

    def annotate(self, content: str) -> list[dict[str, Any]]:
        """Return the cited pages as OpenAI's clients know them. Nobody knows which words cite a page: all of them."""
        spread = {"start_index": 0, "end_index": len(content)}
        pages = [(quote(replace_surrogates(each.url), safe=_SAFE), show_hidden(each.title)) for each in self.citations]
        return [{**spread, "url": url, "title": replace_surrogates(title)} for url, title in pages]

    def _separate(self, kind: str, step: int, text: str) -> str:
        """Begin a new line for text of another kind or step, without the blanks after its label."""
        if self._last == (kind, step):
            return text
        if not (text := text.lstrip(" \t")):
            return ""
        before, self._last = self._last, (kind, step)
        return text if before == ("", 0) else f"\n{text}"

    def _add_answer(self, step: int, text: str) -> str:
        streams = self._loop is not None and isinstance(splitter_of(self._loop, self._phase), OneKind)
        if self._live_step == 0 and streams:
            self._live_step = step
        if self._live_step != step:
            self._live_step = -1 if self._live_step else 0
            return ""
        return self._write(text) if streams else ""

    def _add_text(self, step: int, text: str) -> str:
        """Add text that is the answer unless calls follow."""
        if self._live_step not in (0, step):
            return ""
        self._live_step, self._is_preview = step, True
        self._preface += text
        if not self._sent and len(self._preface) < self._max_preface:
            return ""
        text, self._preface = self._preface, ""
        return self._write(text)

    def _write(self, text: str) -> str:
        # An answer has no spaces around it.
        text = self._held + text if self._sent else (self._held + text).lstrip()
        ready = text.rstrip()
        self._held = text[len(ready) :]
        self._sent += ready
        return ready
