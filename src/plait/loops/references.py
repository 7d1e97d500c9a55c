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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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

    def find_ids(self, value: JSON) -> tuple[str, ...]:
        """The ids that stand in a value, at any depth, each once, in order."""
        return tuple(dict.fromkeys(self._id(match) for text in texts_in(value) for match in self._find(text)))

    def meant(self, value: JSON, steps: Collection[str], question: str = "") -> tuple[str, ...]:
        """The ids among those that stand in a value which are references, and not amounts.

        `steps` are the ids that can be referred to. An id that is none of them can only be a reference, so a plan that
        has it is wrong. `question` is the user's: an amount in it is an amount in the plan.
        """
        return tuple(
            dict.fromkeys(
                id
                for text in texts_in(value)
                for match in self._find(text)
                if (id := self._id(match)) in steps or not self._is_amount(match, id, text, question)
            )
        )

    def is_open(self, text: str) -> bool:
        """A reference may stand in the text."""
        return next(self._find(text), None) is not None

    def fill_step(self, step: Step, results: Mapping[str, Observation]) -> JSON:
        """A step's input with the results that it needs in place of their references."""
        return self.fill(step.input, {need: results[need] for need in step.needs if need in results})

    def fill(self, value: JSON, results: Mapping[str, Observation]) -> JSON:
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

        return map_texts(value, fill)

    def without(self, value: JSON) -> JSON:
        """The value with the references in it left out."""
        return map_texts(value, lambda text: re.sub(self.pattern, "", text, flags=re.A) if self.mark in text else text)

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


def texts_in(value: JSON) -> Iterator[str]:
    """The texts in a value, at any depth; keys are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def map_texts(value: JSON, change: Callable[[str], JSON]) -> Any:
    """The value with each text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value


_FUNCTIONS = "round|sqrt|abs|min|max|sum|avg|mean"
_FORMULA = re.compile(rf"(?:[-+*/^%().,\s\d\0]|{_FUNCTIONS})*")  # one way only: linear
_OPERATOR = re.compile(rf"[-+*/^%]|\b(?:{_FUNCTIONS})\b")
_GAP = re.compile(r"\$?<([^\W\d][\w '’.-]{1,100})>|\$\{([^\W\d][\w '’.-]{1,100})\}")
_CUT = re.compile(rf"\s[-+*/^]\s|[*/+^,()]|(?<=[\d\0])-|-(?=[\d\0])|\b(?:{_FUNCTIONS})\s*(?=\()")
_VALUE = re.compile(r"[\d.]*%?|\0")
_PHRASE = re.compile(r"[^\W\d_]{3,}(?:[ '’-][\w\0'’-]+)*")
_SHORTEST = 4
"""Characters: shorter words may stand anywhere."""
_MOST = 500
"""Characters of a formula: what is longer is a text."""


def insert_references(value: JSON, earlier: Sequence[tuple[str, JSON]]) -> tuple[JSON, tuple[str, ...]]:
    """The input with references in place of words, and the references that were put there.

    `earlier` are the steps before: the reference of each, and its input.
    """
    named = [
        (text.strip(), mark) for mark, given in earlier for text in texts_in(given) if len(text.strip()) >= _SHORTEST
    ]
    named.sort(key=lambda pair: -len(pair[0]))
    put: list[str] = []

    def fill_match(match: re.Match[str]) -> str:
        mark = _meant(match[1] or match[2], named)
        put.extend([mark] if mark else [])
        return mark or match[0]

    def change(text: str) -> JSON:
        if named and "</" not in text:  # a page is no form to be filled in
            text = _GAP.sub(fill_match, text)
        if not named or not _OPERATOR.search(text):
            return text
        used: list[str] = []

        def mark_of(match: re.Match[str]) -> str:
            words = next(group for group in match.groups() if group).casefold()
            mark = next((mark for name, mark in named if name.casefold() == words), None)
            if mark is None:  # letters that are alike to a pattern and differ when folded, such as the dotted capital I
                return match[0]
            used.append(mark)
            return "\0"

        either = "|".join(re.escape(name) for name, _ in named)
        pattern = rf"""<({either})>|["'`\[{{]({either})["'`\]}}]|(?<!\w)({either})(?!\w)"""
        left = re.sub(pattern, mark_of, text, flags=re.IGNORECASE)
        # What is nothing but an earlier input asks for the same once more.
        if not used or "\0" in text or not _OPERATOR.search(left) or not _FORMULA.fullmatch(left):
            return text
        put.extend(used)
        parts = left.split("\0")
        return "".join(part + mark for part, mark in zip(parts, [*used, ""], strict=True))

    return map_texts(value, change), tuple(dict.fromkeys(put))


def words_in_formula(value: JSON, references: References) -> tuple[str, ...]:
    """The words that stand in a formula where a number or a reference should: `7 * price of a lamp`."""
    return tuple(phrase for text in texts_in(value) for phrase in _phrases(text, references))


def _phrases(text: str, references: References) -> list[str]:
    """Those of one text; none where it is no formula of values and words."""
    if len(text) > _MOST or "\0" in text or not _OPERATOR.search(text):
        return []
    marks = (match[0] for match in re.finditer(references.pattern, text, re.A))
    bare = re.sub(references.pattern, "\0", text, flags=re.A)
    terms = [term.strip() for term in _CUT.split(bare) if term.strip()]
    values = [term for term in terms if _VALUE.fullmatch(term)]
    phrases = [term for term in terms if _PHRASE.fullmatch(term)]
    if not values or not phrases or len(values) + len(phrases) < len(terms):
        return []
    whole = [re.sub("\0", lambda _: next(marks), term) for term in terms]
    return [said for said, term in zip(whole, terms, strict=True) if term in phrases]


def _meant(words: str, named: Sequence[tuple[str, str]]) -> str:
    """The one reference that words in a gap can mean: of the step with that input, or, where there is none, of the only
    one whose input has no other words, or all of them; "" for none."""
    wanted = _set(words)
    exact = {mark for name, mark in named if _set(name) == wanted}
    near = {mark for name, mark in named if _set(name) <= wanted or wanted <= _set(name)}
    found = exact or near
    return found.pop() if len(found) == 1 else ""


def _set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", text.casefold()))
