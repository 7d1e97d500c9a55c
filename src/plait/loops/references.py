"""References to results in the inputs of later steps (`#E1`, `$1`): finding them, and filling them in.

A reference is a whole token: `#E10` does not contain `#E1`. Filling is one pass over the original input, so a result
that itself contains `#E2` stays unchanged.

`$5` may be a reference or an amount of money. All loops decide it in the same way (`References.meant`):

- It is a reference if the plan, or an earlier plan of the run, has another step 5.
- Without such a step, it is an amount if it is inside a text with words ("a lunch under $5"), above 20, or in the
  question. An amount stays as written.
- Otherwise it can only be a reference: it is alone, in a formula, or written `${5}`. The plan is then refused, because
  no step gives that result.

`$1,200`, `$1.50`, `$5k` and `US$5` are never references.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from plait.core import JSON, Observation, Step
from plait.core.messages import map_texts, texts_in
from plait.loops.format import Remark

LARGEST_STEP = 20
"""The largest expected number of a step. Above it, `$50` is an amount unless there is a step 50."""
# A word, but not the name of a function in a formula.
_WORD = re.compile(r"[^\W\d_]{2,}(?![^\W\d_]|\s*\()")


class References(Struct, frozen=True):
    """One notation of references. `pattern` matches one; its first non-empty group, behind `prefix`, is the id. Each
    reference begins with `mark`: a text without it need not be searched."""

    pattern: str
    mark: str
    prefix: str = ""

    def find_ids(self, value: JSON) -> tuple[str, ...]:
        """Return the ids in a value, at any depth, each once, in order."""
        return tuple(dict.fromkeys(self._id(match) for text in texts_in(value) for match in self._find(text)))

    def meant(self, value: JSON, steps: Collection[str], question: str = "") -> tuple[str, ...]:
        """Return the ids in a value that are references rather than amounts. `steps` are the ids that can be
        referenced. A reference to any other id is an error in the plan. `question` is the user's: an amount in it is
        also an amount in the plan."""
        return tuple(
            dict.fromkeys(
                id
                for text in texts_in(value)
                for match in self._find(text)
                if (id := self._id(match)) in steps or not self._is_amount(match, id, text, question)
            )
        )

    def is_open(self, text: str) -> bool:
        """Return whether the text may contain a reference."""
        return next(self._find(text), None) is not None

    def fill_step(self, step: Step, results: Mapping[str, Observation]) -> JSON:
        """Return a step's input with its references replaced by results."""
        return self.fill(step.input, {need: results[need] for need in step.needs if need in results})

    def fill(self, value: JSON, results: Mapping[str, Observation]) -> JSON:
        """Return the value with each reference replaced by its result.

        A text that is a single reference becomes the result's value if that is a list or an object. Everywhere else,
        the result's text is inserted. References without a result stay.
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
"""`$1` or `${1}`: the results of numbered calls. Amounts such as $1,200, $1.50, $5k or US$5 do not match."""


_FUNCTIONS = "round|sqrt|abs|min|max|sum|avg|mean"
_FORMULA = re.compile(rf"(?:[-+*/^%().,\s\d\0]|{_FUNCTIONS})*")  # unambiguous, so that matching is linear
_OPERATOR = re.compile(rf"[-+*/^%]|\b(?:{_FUNCTIONS})\b")
_GAP = re.compile(r"\$?<([^\W\d][\w '’.-]{1,100})>|\$\{([^\W\d][\w '’.-]{1,100})\}")
_CUT = re.compile(rf"\s[-+*/^]\s|[*/+^,()]|(?<=[\d\0])-|-(?=[\d\0])|\b(?:{_FUNCTIONS})\s*(?=\()")
_VALUE = re.compile(r"[\d.]*%?|\0")
_PHRASE = re.compile(r"[^\W\d_]{3,}(?:[ '’-][\w\0'’-]+)*")
_SHORTEST = 4
"""Minimum number of characters; shorter words may occur anywhere."""
_MOST = 500
"""Maximum number of characters of a formula; anything longer is a text."""


def insert_references(value: JSON, earlier: Sequence[tuple[str, JSON]]) -> tuple[JSON, tuple[str, ...]]:
    """Return the input with references in place of words, and the references that were inserted. `earlier` holds the
    reference and the input of each earlier step."""
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
        if named and "</" not in text:  # a page is not a template
            text = _GAP.sub(fill_match, text)
        if not named or not _OPERATOR.search(text):
            return text
        used: list[str] = []

        def mark_of(match: re.Match[str]) -> str:
            words = next(group for group in match.groups() if group).casefold()
            mark = next((mark for name, mark in named if name.casefold() == words), None)
            if mark is None:  # some letters match a pattern but differ when folded, such as the dotted capital I
                return match[0]
            used.append(mark)
            return "\0"

        either = "|".join(re.escape(name) for name, _ in named)
        pattern = rf"""<({either})>|["'`\[{{]({either})["'`\]}}]|(?<!\w)({either})(?!\w)"""
        left = re.sub(pattern, mark_of, text, flags=re.IGNORECASE)
        # A text that equals an earlier input repeats that request.
        if not used or "\0" in text or not _OPERATOR.search(left) or not _FORMULA.fullmatch(left):
            return text
        put.extend(used)
        parts = left.split("\0")
        return "".join(part + mark for part, mark in zip(parts, [*used, ""], strict=True))

    return map_texts(value, change), tuple(dict.fromkeys(put))


def refer_to_steps(what: str, step: Step, earlier: Iterable[Step], mark: str, remarks: list[Remark]) -> Step:
    """Return the step with references in place of words for what earlier steps find. A remark says so of `what`."""
    value, put = insert_references(step.input, [(f"{mark}{other.id}", other.input) for other in earlier])
    if put:
        remarks.append(Remark("repaired", f"{what} {step.id} had words in place of {', '.join(put)}"))
    return structs.replace(step, input=value, written="") if put else step


def words_in_formula(value: JSON, references: References) -> tuple[str, ...]:
    """Return the words in a formula where a number or a reference belongs: `7 * price of a lamp`."""
    return tuple(phrase for text in texts_in(value) for phrase in _phrases(text, references))


def _phrases(text: str, references: References) -> list[str]:
    """Return these words of one text; none if it is not a formula of values and words."""
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
    """Return the one reference that words in a gap can mean, or "" if there is none.

    It is the step with exactly that input. Otherwise it is the only step whose input contains all or only these words.
    """
    wanted = _set(words)
    exact = {mark for name, mark in named if _set(name) == wanted}
    near = {mark for name, mark in named if _set(name) <= wanted or wanted <= _set(name)}
    found = exact or near
    return found.pop() if len(found) == 1 else ""


def _set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", text.casefold()))
