"""What the runtime does for one tool call: its context, questions to models, child runs, progress."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from functools import partial

from plait.core import Call, LimitNear, Think, Usage
from plait.core import events as ev
from plait.core.errors import ConfigError, ModelError, ToolError
from plait.core.messages import system, user
from plait.models.base import Model
from plait.runtime.call_model import ask_model, limit_reply
from plait.runtime.context import CallLogger, Context
from plait.runtime.limits import BudgetSpent, LimitReached
from plait.runtime.phase_models import Phases, without_special_tokens
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run_context import RunContext
from plait.runtime.tool_prints import as_usual

LOGGER = logging.getLogger("plait.tools")


class ToolServices:
    """Serves call `i` of effect `n`. `past` is what is recorded of the effect. Used on the run's event loop."""

    def __init__(self, run_context: RunContext, n: int, i: int, step: int, call: Call, past: PastEffect) -> None:
        self.run_context, self.n, self.i, self.step, self.call, self.past = run_context, n, i, step, call, past
        self.loop = asyncio.get_running_loop()
        self.meter = run_context.meter
        self._recorded = {k: asked for (j, k), asked in past.asked.items() if j == i}
        self._asked = max(self._recorded, default=-1) + 1

    @property
    def key(self) -> str:
        """The name of this call, the same whenever it is made again: a digest of the run and its place in it."""
        return _digest(self.run_context.log.run, str(self.n), str(self.i))

    @property
    def usage(self) -> Usage:
        return self.meter.spent.usage

    def make_context(self) -> Context[object]:
        """Return the context that the tool gets."""
        run_spec, run = self.run_context.run_spec, self.run_context.log.run
        logger = CallLogger(LOGGER, {"run": run, "step": self.step, "tool": self.call.tool})
        return Context(run_spec.deps, run, self.step, run_spec.session, self.key, logger, self)

    def report_progress(self, text: str) -> None:
        with as_usual():
            self.run_context.say(ev.Noted(self.step, "progress", f"{self.call.tool}: {text}"))

    async def ask_model(self, question: str, model: str | Model | None, rules: str, max_tokens: int | None) -> str:
        """Return a model's reply to a question of the tool. Raises `ToolError`."""
        if not question.strip():
            raise ToolError("The question is empty.", hint="Give the whole question: nothing else is seen.")
        try:
            text = await self._ask(question, model, rules, max_tokens)
        except (LimitNear, LimitReached) as why:
            raise BudgetSpent(why) from None
        except (ModelError, ConfigError) as why:
            after = f" Wait {why.after:g} s." if isinstance(why, ModelError) and why.after is not None else ""
            raise ToolError(why.message, hint=f"{why.hint}{after}".strip()) from why
        if not text:
            raise ToolError("The model gave no answer.", hint="Ask in another way.")
        return text

    async def _ask(self, question: str, given: str | Model | None, rules: str, max_tokens: int | None) -> str:
        run_context, run_spec, meter = self.run_context, self.run_context.run_spec, self.meter
        think = Think(f"tool:{self.call.tool}", (system(rules), user(question)), max_tokens=max_tokens)
        think = without_special_tokens(think, run_spec.data_tokens)
        phases = Phases({"": run_spec.find_model(given)})
        model = phases.of(think.phase)
        if (recorded := self._take_recorded(think, phases)) is not None:
            return recorded
        meter.before_tool_request(model)
        number, self._asked = self._asked, self._asked + 1
        run_context.say(ev.Asked(self.step, think.phase, model.spec))
        with meter.asking(by_tool=True) as share, run_context.span.model(self.step, think, model) as span:
            reply = await ask_model(
                phases,
                think,
                n=self.n,
                step=self.step,
                log=run_context.log,
                past=PastEffect(),
                retries=run_spec.limits.retries,
                on_text=None,
                on_note=partial(run_context.remark, self.step),
                span=span,
                meter=meter,
                share=share,
                asked_by=(self.i, number),
            )
        meter.count_tool_reply(reply.usage, reply.cost)
        run_context.say(ev.Noted(self.step, "tool_model", reply.text))
        run_context.say(
            ev.Replied(self.step, think.phase, reply.model, reply.text, reply.usage, reply.seconds, reply.cost)
        )
        return reply.text.strip()

    def _take_recorded(self, think: Think, phases: Phases) -> str | None:
        """Return the recorded reply to the same question of this call, each only once; None if there is none."""
        for k, asked in self._recorded.items():
            made = phases.find_model(think.phase, asked.model).encode(limit_reply(think, asked.last.max_tokens))
            if asked.reply is not None and self.run_context.log.scrub(made.body) == asked.request:
                del self._recorded[k]
                return asked.reply.text.strip()
        return None


def _digest(*words: str) -> str:
    text = "\0".join(words).encode("utf-8", "surrogatepass")
    return base64.b32encode(hashlib.blake2b(text, digest_size=15).digest()).decode().lower()
