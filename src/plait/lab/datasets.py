"""Suites of published datasets, read from files, and the tasks of the world."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ConfigError
from plait.lab.corpus import corpus_word, hotpotqa_id, musique_id, strategyqa_pages
from plait.lab.graders.answers import LABELS, find_label, last_number, parse_yes_no
from plait.lab.records import check_distinct, find_file, parse_options, read_records
from plait.lab.stubs import fit_tool_name, load_stubs, stubs_word
from plait.lab.tasks import Suite, SuiteTask
from plait.lab.world import TASKS, world_of
from plait.lab.world.tasks import VARIATIONS

SIX = "world:1,now=2024-03-12"
"""The world of the six tasks. It is fixed, so that the tasks are the same on every day."""
SHOWN = 10
"""Number of tools that `tool-search` shows a model by default."""
FEVER_QUESTION = """\
Is this claim supported or refuted by what can be found? Answer with one label: SUPPORTS, REFUTES or NOT ENOUGH INFO.
Claim: {}"""


def load_gsm8k(argument: str) -> Suite:
    """Load `gsm8k:FILE` (Cobbe et al. 2021, arXiv:2110.14168): grade-school mathematics. Records have `question` and
    `answer`: the number alone, or a solution with the number after `####`."""
    path = find_file(parse_options(argument, (), "gsm8k")[0])
    tasks = []
    for entry in read_records(path):
        number = last_number(entry.text("answer").rpartition("####")[2])
        if number is None:
            raise entry.error("the answer has no number in it.", "It must be 18, or a solution and then #### 18.")
        answer = int(number) if number.denominator == 1 else float(number)
        tasks.append(SuiteTask(id=f"gsm8k-{entry.number}", question=entry.text("question"), answer=answer))
    return Suite(
        word=f"gsm8k:{path}",
        about="grade-school mathematics, with a calculator",
        tasks=tuple(tasks),
        grader="number",
        tools=("calculator",),
    )


def load_hotpotqa(argument: str) -> Suite:
    """Load `hotpotqa:FILE` (Yang et al. 2018, arXiv:1809.09600): questions over two of ten paragraphs.

    Records have `question`, `answer` and `context`: a list of [title, [sentence, ...]] as published, or
    {"title": [...], "sentences": [...]}.
    """
    path = find_file(parse_options(argument, (), "hotpotqa")[0])
    entries = read_records(path)
    ids = [hotpotqa_id(entry) for entry in entries]
    check_distinct(zip(entries, ids, strict=True))
    tasks = tuple(
        SuiteTask(
            id=id,
            question=entry.text("question"),
            answer=entry.text("answer"),
            tools=(corpus_word("hotpotqa", path, id),),
            about={key: entry.value[key] for key in ("type", "level") if entry.value.get(key)},
        )
        for id, entry in zip(ids, entries, strict=True)
    )
    about = "questions over two of ten paragraphs, which can be searched"
    return Suite(word=f"hotpotqa:{path}", about=about, tasks=tasks, grader="f1")


def load_fever(argument: str) -> Suite:
    """Load `fever:FILE[,corpus=FILE]` (Thorne et al. 2018, arXiv:1803.05355): claims to support or refute.

    Records have `id`, `claim` and `label`. A claim that occurs once for each piece of its evidence is one task. Pages
    of the corpus have `id` or `title`, and `text` or `lines`. Without a corpus the tasks have no tools of their own.
    """
    name, given = parse_options(argument, ("corpus",), "fever")
    path = find_file(name)
    tasks: dict[str, SuiteTask] = {}
    for entry in read_records(path):
        id, claim, text = entry.id("id", otherwise=f"fever-{entry.number}"), entry.text("claim"), entry.text("label")
        label = find_label(text, LABELS)
        if not label:
            raise entry.error(f"the label is {text!r}.", f"It is one of: {', '.join(LABELS)}.")
        task = SuiteTask(id=id, question=FEVER_QUESTION.format(claim), answer=label, about={"label": label})
        if tasks.setdefault(id, task) != task:
            raise entry.error(f"the id {id!r} is that of another claim as well.", "Change one.")
    word, words = _with_corpus(f"fever:{path}", given)
    about = "claims to be supported or refuted"
    return Suite(word=word, about=about, tasks=tuple(tasks.values()), grader="label", tools=words)


def load_strategyqa(argument: str) -> Suite:
    """Load `strategyqa:FILE` (Geva et al. 2021, arXiv:2101.02235): yes-or-no questions with implicit steps.

    Records have `question`, `answer` (true or false), `qid`, `term` and `facts`. The facts of all questions together
    can be searched by term and by words.
    """
    path = find_file(parse_options(argument, (), "strategyqa")[0])
    entries = read_records(path)
    tasks = []
    for entry in entries:
        given = entry.require("answer")
        answer = given if isinstance(given, bool) else parse_yes_no(str(given))
        if answer is None:
            raise entry.error(f"the answer is {given!r}.", "It is true or false.")
        steps = entry.value.get("decomposition")
        tasks.append(
            SuiteTask(
                id=entry.id("qid", "id", otherwise=f"strategyqa-{entry.number}"),
                question=f"{entry.text('question')} Answer yes or no.",
                answer=answer,
                about={"steps": len(steps)} if isinstance(steps, list) else {},
            )
        )
    check_distinct((entry, task.id) for entry, task in zip(entries, tasks, strict=True))
    has_facts = bool(strategyqa_pages(entries))
    return Suite(
        word=f"strategyqa:{path}",
        about="yes-or-no questions" + (" over facts that can be searched" if has_facts else ""),
        tasks=tuple(tasks),
        grader="yesno",
        tools=(corpus_word("strategyqa", path),) if has_facts else (),
    )


def load_musique(argument: str) -> Suite:
    """Load `musique:FILE[,corpus=FILE]` (Trivedi et al. 2022, arXiv:2108.00573): questions of two to four hops.

    Records have `id`, `question`, `answer`, `answer_aliases` and `paragraphs`. With a corpus (`title`, `text`) all
    tasks search it. Questions marked as not answerable are skipped; the suite's `about` says how many.
    """
    name, given = parse_options(argument, ("corpus",), "musique")
    path = find_file(name)
    entries = read_records(path)
    known = [entry for entry in entries if entry.value.get("answerable") is not False]
    ids = [musique_id(entry) for entry in known]
    check_distinct(zip(known, ids, strict=True))
    word, words = _with_corpus(f"musique:{path}", given)
    tasks = []
    for id, entry in zip(ids, known, strict=True):
        hops = entry.value.get("question_decomposition")
        first, others = entry.text("answer"), entry.value.get("answer_aliases") or []
        if not isinstance(others, list):
            raise entry.error("'answer_aliases' is not a list.")
        answers = list(dict.fromkeys([first, *map(str, others)]))
        tasks.append(
            SuiteTask(
                id=id,
                question=entry.text("question"),
                answer=answers if len(answers) > 1 else first,
                tools=() if words else (corpus_word("musique", path, id),),
                about={"hops": len(hops)} if isinstance(hops, list) else {},
            )
        )
    skipped = len(entries) - len(known)
    about = "questions of several hops over paragraphs"
    about += f" ({skipped} that can't be answered are left out)" if skipped else ""
    return Suite(word=word, about=about, tasks=tuple(tasks), grader="f1", tools=words)


def load_tool_search(argument: str) -> Suite:
    """Load `tool-search:QUERIES,tools=FILE[,show=N]`: queries whose right tools are known, over stand-ins of tools.

    Queries have `query` (or `question`) and `gold`, the names of the right tools. `show` says how many tools are shown
    beside the one that searches the others. `stubs.py` describes the file of tools.
    """
    name, given = parse_options(argument, ("tools", "show"), "tool-search")
    if "tools" not in given:
        raise ConfigError("A tool-search suite needs the tools.", hint="Write tool-search:QUERIES,tools=FILE.")
    show = given.get("show", str(SHOWN)).strip()
    if not show.isdecimal():
        raise ConfigError(f"show={show} is not a number of tools.", hint="Such as show=10.")
    path, where = find_file(name), find_file(given["tools"])
    stubs = load_stubs(where)
    known = {tool.name for tool in stubs}
    tasks = []
    entries = read_records(path)
    for entry in entries:
        right: Any = entry.require("gold", "tools")
        names = [right] if isinstance(right, str) else right
        if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
            raise entry.error(f"'gold' is {right!r}.", "It is a list of names of tools.")
        fitted = [fit_tool_name(each) for each in names]
        if absent := [each for each, fit in zip(names, fitted, strict=True) if fit not in known]:
            raise entry.error(f"{where.name} has no tool {absent[0]!r}.")
        gold = list(dict.fromkeys(fitted))
        tasks.append(
            SuiteTask(
                id=entry.id("id", otherwise=f"query-{entry.number}"),
                question=entry.text("query", "question"),
                answer=gold,
                about={"calls": len(gold)},
            )
        )
    check_distinct((entry, task.id) for entry, task in zip(entries, tasks, strict=True))
    return Suite(
        word=f"tool-search:{path},tools={where},show={int(show)}",
        about=f"queries whose right tools, among {len(stubs):,}, are to be found and called",
        tasks=tuple(tasks),
        grader="calls",
        tools=(stubs_word(where),),
        max_tools=int(show),
    )


def load_world(argument: str) -> Suite:
    """Load `world`, `world:six` or `world:variations`. Each task has its own world; what was sent in it is graded."""
    parts = {"": (*TASKS, *VARIATIONS), "six": TASKS, "variations": VARIATIONS}
    if (part := argument.strip()) not in parts:
        raise ConfigError(f"The suite world has no part {part!r}.", hint="Write world, world:six or world:variations.")
    tasks = []
    for task in parts[part]:
        word = SIX if task in TASKS else task.world
        tasks.append(
            SuiteTask(
                id=task.name,
                question=task.question,
                grader=f"world:{task.name}",
                tools=(word,),
                split="six" if task in TASKS else "variations",
                now=world_of(word).now.timestamp(),
                about={"task": task.name[0], "kind": task.kind},
            )
        )
    word = f"world{':' * bool(part)}{part}"
    about = "errands in an offline world, graded by what was sent"
    return Suite(word=word, about=about, tasks=tuple(tasks), grader="world")


def _with_corpus(word: str, given: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return a suite's word, and the words of its tools, with the corpus that its options name."""
    if "corpus" not in given:
        return word, ()
    path = find_file(given["corpus"])
    return f"{word},corpus={path}", (corpus_word("pages", path),)
