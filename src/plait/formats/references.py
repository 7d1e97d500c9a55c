"""Names of results inside the inputs of later steps (`#E1`, `$1`): found, and filled in.

A name counts as a whole token: `#E1` is not the head of `#E10`. Filling is one pass over the input as it was
written, so a result that itself contains `#E2` stays as it is.

`$5` may be a reference or an amount of money. All loops decide it in the same way (`References.meant`):

- It is a reference if the plan, or an earlier plan of the run, has another step 5 to refer to.
- If there is no such step, it is an amount inside a text with words ("a lunch under $5"), above 20, or if the question
  says `$5`. An amount stays as it is written.
- Otherwise it can only be a reference: it stands alone, in a formula, or as `${5}`. Then the plan is refused, because
  no step gives that result.

`$1,200`, `$1.50`, `$5k` and `US$5` are never references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from plait.core import JSON, Observation, Step

LARGEST_STEP = 20
"""No plan is expected to have a step of a larger number: above it, `$50` is an amount unless there is a step 50."""
# A word, as against the name of a function in a formula.
_WORD = re.compile(r"[^\W\d_]{2,}(?![^\W\d_]|\s*\()")


class References(Struct, frozen=True):
    """One way to write references. `pattern` matches one; its first group that has text, behind `prefix`, is the id.
    `mark` is what each begins with: a text without it names nothing, and need not be searched."""

    pattern: str
    mark: str
    prefix: str = ""

    def named(self, value: JSON) -> tuple[str, ...]:
        """The ids that stand in a value, at any depth, each once, in order."""
        return tuple(dict.fromkeys(self._id(match) for text in texts(value) for match in self._find(text)))

    def meant(self, value: JSON, steps: Collection[str], question: str = "") -> tuple[str, ...]:
        """The ids among those that stand in a value which are references, and not amounts.

        `steps` are the ids that can be referred to. An id that is none of them can only be a reference, so a plan that
        has it is wrong. `question` is the user's: an amount in it is an amount in the plan.
        """
        return tuple(
            dict.fromkeys(
                id
                for text in texts(value)
                for match in self._find(text)
                if (id := self._id(match)) in steps or not self._is_amount(match, id, text, question)
            )
        )

    def is_open(self, text: str) -> bool:
        """A reference may stand in the text."""
        return next(self._find(text), None) is not None

    def fill_step(self, step: Step, results: Mapping[str, Observation]) -> JSON:
        """A step's input with the results that it needs in place of their references."""
        return self.filled(step.input, {need: results[need] for need in step.needs if need in results})

    def filled(self, value: JSON, results: Mapping[str, Observation]) -> JSON:
        """The value with each reference replaced by its result.

        A text that is one reference and nothing else becomes the result's own value where that is a list or an
        object; everywhere else the result's text stands in. References without a result stay.
        """

        def fill(text: str) -> JSON:
            if self.mark not in text:
                return text
            whole = re.fullmatch(self.pattern, text.strip(), re.A)
            if whole and (alone := results.get(self._id(whole))) and isinstance(alone.value, list | dict):
                return alone.value
            return re.sub(self.pattern, put, text, flags=re.A)

        def put(match: re.Match[str]) -> str:
            found = results.get(self._id(match))
            return found.text if found is not None else match[0]

        return mapped(value, fill)

    def without(self, value: JSON) -> JSON:
        """The value with the references in it left out."""
        return mapped(value, lambda text: re.sub(self.pattern, "", text, flags=re.A) if self.mark in text else text)

    def _is_amount(self, match: re.Match[str], id: str, text: str, question: str) -> bool:
        if self.prefix or match[0].startswith("${"):
            return False
        if int(id) > LARGEST_STEP or re.search(rf"(?<!\w)\${id}(?![\w.,]*\d)", question, re.A):
            return True
        return _WORD.search(re.sub(self.pattern, "", text, flags=re.A)) is not None

    def _find(self, text: str) -> Iterator[re.Match[str]]:
        return re.finditer(self.pattern, text, re.A) if self.mark in text else iter(())

    def _id(self, match: re.Match[str]) -> str:
        return self.prefix + str(int(next(group for group in match.groups() if group)))


EVIDENCE = References(r"#E(\d{1,6})(?!\w)", "#E", "E")
"""`#E1`: the evidence of ReWOO."""

RESULTS = References(r"\$\{(\d{1,6})\}|(?<![A-Za-z])\$(\d{1,6})(?!\w|[.,]\d)", "$")
"""`$1` or `${1}`: the results of numbered calls. An amount such as $1,200, $1.50, $5k or US$5 is none."""


def texts(value: JSON) -> Iterator[str]:
    """The texts in a value, at any depth; keys are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def mapped(value: JSON, change: Callable[[str], JSON]) -> Any:
    """The value with each text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return value
