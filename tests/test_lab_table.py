"""The lab's table: its rows and pairs, and how they are shown, from results made by hand."""

from __future__ import annotations

import csv
import io
import json
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from rich.cells import cell_len

from lab_results import comparison, contender, result, spent
from plait.cli.output import print_table
from plait.core import Usage
from plait.lab import Contender, Grade, report, statistics
from plait.lab.comparison import short_names
from plait.lab.grid import TableColumn, render_grid
from plait.runtime.costs import in_all

# -- rows


def test_a_row_has_the_means_of_its_finished_runs() -> None:
    made = comparison({"react": "++-", "json": "   "})
    key = "react @ local"
    results = (
        result(key, "t1", True, tokens=(100, 10, 40), cost_usd=0.25, seconds=4.0, steps=1, calls=1, repairs=2),
        result(key, "t2", True, tokens=(300, 50, 0), cost_usd=0.5, seconds=1.0, steps=3, calls=5, invented=1),
        result(key, "t3", False, tokens=(203, 31, 2), cost_usd=0.0, seconds=2.0, status="stopped", fell_back=True),
    )
    row, other = structs.replace(made, results=results).rows
    assert (row.n, row.tasks, row.successes, row.success) == (3, 3, 2, 2 / 3)
    assert row.interval == statistics.wilson_interval(2, 3)
    assert (row.steps, row.calls) == (2.0, 8 / 3)
    assert (row.input_tokens, row.output_tokens, row.cached_tokens, row.tokens) == (201.0, 91 / 3, 14.0, 694 / 3)
    assert (row.seconds, row.seconds_p90) == (2.0, pytest.approx(np.quantile([4, 1, 2], 0.9)))
    assert (row.cost_usd, row.cost_usd_total, row.grading_usd) == (0.25, 0.75, 0.0)
    assert (row.repairs, row.repaired, row.invented, row.fell_back) == (2 / 3, 1 / 3, 1 / 3, 1)
    assert row.statuses == {"answered": 2, "stopped": 1}
    assert (other.n, other.success, other.interval, other.tokens, other.cost_usd) == (0, None, None, None, None)


def test_rows_come_in_the_order_of_the_comparison() -> None:
    made = comparison({"rewoo": "+", "json": "-", "react": "+"})
    assert [row.loop for row in made.rows] == ["rewoo", "json", "react"]


def test_one_unknown_price_makes_the_cost_unknown_not_less() -> None:
    made = comparison({"react": "++"})
    first, second = made.results
    row = structs.replace(made, results=(first, structs.replace(second, cost_usd=None))).rows[0]
    assert row.cost_usd is None and row.cost_usd_total is None and row.grading_usd == 0.0


def test_money_is_summed_without_the_drift_of_floats() -> None:
    row = comparison({"react": "+" * 0 + "+++"}, cost_usd=0.1).rows[0]
    assert row.cost_usd_total == 0.3 != 0.1 + 0.1 + 0.1


def test_a_graders_own_numbers_are_averaged_and_what_grading_cost_is_told() -> None:
    made = comparison({"react": "++"})
    grades = [
        Grade(True, 0.5, "right", measures={"f1": 0.5, "em": 0.0}, cost_usd=0.002),
        Grade(False, 0.0, "wrong", measures={"f1": 0.25}, cost_usd=0.001),
    ]
    results = tuple(structs.replace(each, grade=grade) for each, grade in zip(made.results, grades, strict=True))
    row = structs.replace(made, results=results).rows[0]
    assert row.measures == {"f1": 0.375, "em": 0.0}
    assert (row.score, row.grading_usd, row.success) == (0.25, 0.003, 0.5)


def test_repeats_of_a_task_make_the_interval_narrower_only_as_far_as_they_tell() -> None:
    alike = comparison({"react": ["++++", "++++", "----", "++++"]}).rows[0]
    mixed = comparison({"react": ["+++-", "++-+", "+-++", "-+++"]}).rows[0]
    assert alike.success == mixed.success == 0.75
    assert (alike.worth, mixed.worth) == (4, 16)
    assert alike.interval == pytest.approx(statistics.wilson_interval(3, 4))
    assert mixed.interval == pytest.approx(statistics.wilson_interval(12, 16))


# -- pairs


def test_two_rows_are_compared_on_the_tasks_both_finished() -> None:
    made = comparison({"react": "+++++++++-- ", "json": "--------- -+"})
    (pair,) = made.pairs
    assert (pair.tasks, pair.wins_a, pair.wins_b, pair.both_right, pair.both_wrong) == (10, 9, 0, 0, 1)
    assert pair.difference == 0.9
    assert pair.p == pair.p_holm == 2 / 2**9
    assert pair.word == "better"
    assert comparison({"json": "---------", "react": "+++++++++"}).pairs[0].word == "worse"


def test_fewer_than_six_tasks_that_differ_are_too_few_to_tell() -> None:
    assert comparison({"a": "+++++" + "+" * 20, "b": "-----" + "+" * 20}).pairs[0].word == "too few to tell"
    assert comparison({"a": "++++++" + "+" * 20, "b": "------" + "+" * 20}).pairs[0].word == "better"
    assert comparison({"a": "++++--" + "+" * 20, "b": "----++" + "+" * 20}).pairs[0].word == "no difference seen"


def test_what_is_tested_more_often_needs_a_smaller_p() -> None:
    outcomes = {"a": "++++++-", "b": "-------", "c": "------+"}
    first = comparison(outcomes).pairs
    assert [(each.p, each.p_holm) for each in first] == [
        (pytest.approx(2 / 2**6), pytest.approx(6 / 2**6)),
        (pytest.approx(16 / 2**7), pytest.approx(2 * 16 / 2**7)),
        (1.0, 1.0),
    ]
    assert [each.word for each in first] == ["no difference seen", "no difference seen", "too few to tell"]


def test_rows_without_a_common_task_are_not_tested_and_don_t_count() -> None:
    made = comparison({"a": "++++++  ", "b": "------  ", "c": "      ++"})
    first, second, third = made.pairs
    assert (first.word, first.p_holm) == ("better", first.p)
    assert second.word == third.word == "no common tasks"
    assert second.p is None and second.difference is None and second.tokens_ratio is None and second.seeable is None


def test_with_repeats_a_task_is_won_by_the_higher_rate() -> None:
    (pair,) = comparison({"a": ["++", "+-", "--", "++"], "b": ["++", "--", "--", "+ "]}).pairs
    assert (pair.tasks, pair.wins_a, pair.wins_b, pair.both_right, pair.both_wrong) == (4, 1, 0, 2, 1)
    assert pair.difference == 0.125


def test_tokens_of_one_row_over_those_of_the_other() -> None:
    made = comparison({"a": "+++", "b": "+++"})
    results = tuple(
        structs.replace(each, usage=Usage(300 if each.variant.startswith("a") else 200, 0)) for each in made.results
    )
    (pair,) = structs.replace(made, results=results).pairs
    assert pair.tokens_ratio == 1.5
    assert pair.tokens_interval == pytest.approx((1.5, 1.5))


# -- parts

PHASES = (
    spent("reason", "local", 2, (901, 40), 0.7, 0.0007),
    spent("tools", "", 2, (0, 0), 0.1, 0.0),
    spent("reply", "remote", 1, (100, 11), 0.2, 0.0003),
)


def test_phases_add_up_to_what_the_runs_spent() -> None:
    made = comparison({"react": "+-+"}, phases=PHASES, tokens=(1001, 51, 0), calls=3)
    (told,) = made.by_phase()
    assert [(part.phase, part.model, part.calls) for part in told.spent] == [
        ("reason", "local", 6),
        ("tools", "", 6),
        ("reply", "remote", 3),
    ]
    whole = in_all(told.spent)
    assert whole.usage == sum((each.usage for each in made.results), Usage())
    assert whole.cost_usd == made.rows[0].cost_usd_total


def test_success_is_parted_by_a_field_of_the_tasks() -> None:
    fields: list[dict[str, Any]] = [{"steps": 10}, {"steps": 2}, {"steps": 2}, {}]
    made = comparison({"react": "+-+-", "json": " +++"}, about=fields)
    told = [(each.key, each.value, each.successes, each.n, each.success) for each in made.by_field("steps")]
    assert told == [
        ("react @ local", 2, 1, 2, 0.5),
        ("react @ local", 10, 1, 1, 1.0),
        ("react @ local", None, 0, 1, 0.0),
        ("json @ local", 2, 2, 2, 1.0),
        ("json @ local", 10, 0, 0, None),
        ("json @ local", None, 1, 1, 1.0),
    ]


# -- shown

SMALL = {"react": "++++++++++++++-+", "react(dialect=lines)": "----+++++-------", "rewoo": "++++++++++----++"}


def test_the_table_in_a_terminal() -> None:
    made = comparison({**SMALL, "json": "+++++++++++++   "}, unfinished="the budget is spent")
    shown = report.render_text(made, width=108)
    assert shown == dedent(
        """\
        towns: 16 tasks, local

        loop                         success  runs  steps  calls     in  out  tokens  seconds   p90      USD
        react                   94 % (72-99)    16    2.0    2.0  1,000   50   1,050     1.00  1.00  0.00100
        react(dialect=lines)    31 % (14-56)    16    2.0    2.0  1,000   50   1,050     1.00  1.00  0.00100
        rewoo                   75 % (51-90)    16    2.0    2.0  1,000   50   1,050     1.00  1.00  0.00100
        json                  100 % (77-100)    13    2.0    2.0  1,000   50   1,050     1.00  1.00  0.00100

        Left out for width: cached, repairs, repaired, invented; --markdown shows them.

        Not finished: 3 of 64 cells: the budget is spent.
        The rows don't have the same runs; two rows are compared on the tasks both finished.
        Success: the share of runs that did the task, with a 95 % interval (Wilson's). Seconds: the median (p90: 9
          of 10 runs took less). All else: the mean of a run.
        Differ (sign-flip test on the same tasks, p adjusted by Holm for all pairs):
          react is better than react(dialect=lines): of 16 tasks 10 to 0, p 0.012
          json is better than react(dialect=lines): of 13 tasks 8 to 0, p 0.039
        No difference seen: react(dialect=lines) and rewoo (0 to 7, p 0.062). Tested alone, a true difference of
          about 52 points would have been seen 4 times of 5.
        Too few to tell: react and rewoo; react and json; rewoo and json. Fewer than 6 tasks differ: that can always
          be chance.
        In all 61 runs, 64,050 tokens, 0.06100 USD.
        """
    ).rstrip("\n")


def test_a_narrow_terminal_leaves_columns_out_and_says_so_but_never_the_sums() -> None:
    made = comparison(SMALL)
    for width in (150, 120, 100, 80, 66):
        shown = report.render_text(made, width=width)
        assert max(map(len, shown.split("\n\n")[1].split("\n")[:4])) <= width
        assert max(map(len, shown.split("\n\n")[2].split("\n"))) <= width
        head = shown.split("\n")[2].split()
        assert {"loop", "success", "tokens", "seconds", "USD"} <= set(head)
        assert ("Left out for width" in shown) == (len(head) < len(report.table_columns(made.rows)))


def test_columns_line_up_behind_letters_that_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["東京の一覧", "1"], ["Nice", "200"]]
    columns = [TableColumn("name", tuple(row[0] for row in rows), left=True), TableColumn("n", ("1", "200"))]
    drawn, _ = render_grid(columns)
    print_table(["name", ">n"], rows)
    assert capsys.readouterr().out.rstrip("\n") == drawn
    assert {cell_len(line) for line in drawn.split("\n")} == {15}


def test_the_columns_that_matter_least_go_first() -> None:
    made = comparison(SMALL)
    left = [
        report.render_text(made, width=width).split("Left out for width: ")[1].split(";")[0] for width in (120, 110, 90)
    ]
    assert left == ["repaired, invented", "cached, repaired, invented", "cached, out, p90, repairs, repaired, invented"]


def test_names_are_cut_in_the_middle_before_a_line_is_too_long_and_stay_different() -> None:
    outcomes = {"react(dialect=lines,constrain=true)": "+", "react(dialect=lines,constrain=false)": "-"}
    shown = report.render_text(comparison(outcomes, who=["a-model-with-a-long-name", "b"]), width=90)
    table = shown.split("\n\n")[1].split("\n")[:3]
    assert max(map(len, table)) <= 90 and "=false)" in table[2]
    assert len({line.split()[0] for line in table}) == 3
    hopeless = report.render_text(comparison(outcomes), width=20).split("\n\n")[1].split("\n")
    assert len({line.split()[0] for line in hopeless[:3]}) == 3 and "1,050" in hopeless[1]


def test_the_table_in_markdown() -> None:
    shown = report.render_markdown(comparison({"re|act": "+-", "json": "++"}, who=["a", "<b>"], cost_usd=None))
    assert shown == dedent(
        """\
        **towns: 2 tasks**

        | loop | models | success | runs | steps | calls | in | cached | out | tokens | seconds | p90 | USD | repairs | repaired | invented |
        |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
        | re\\|act | a | 50 % (9-91) | 2 | 2.0 | 2.0 | 1,000 | 0 | 50 | 1,050 | 1.00 | 1.00 | ? | 0.00 | 0 % | 0.00 |
        | json | \\<b> | 100 % (34-100) | 2 | 2.0 | 2.0 | 1,000 | 0 | 50 | 1,050 | 1.00 | 1.00 | ? | 0.00 | 0 % | 0.00 |

        - Success: the share of runs that did the task, with a 95 % interval (Wilson's). Seconds: the median (p90: 9 of 10 runs took less). All else: the mean of a run.
        - Too few to tell: re\\|act and json. Fewer than 6 tasks differ: that can always be chance.
        - In all 4 runs, 4,200 tokens, ? USD.
        - ?: a price is unknown. Add it to [prices] in plait.toml, and repeat the runs with --again.
        """  # noqa: E501
    ).rstrip("\n")


def test_what_is_shown_on_demand() -> None:
    fields = [{"steps": 1}, {"steps": 1}, {"steps": 2}]
    made = comparison(
        {"react": "++-", "rewoo": "+--"}, phases=PHASES, about=fields, tokens=(1001, 51, 0), who=["a", "b"]
    )
    shown = report.render_text(made, phases=True, all_pairs=True, by="steps")
    assert shown.split("\n\n")[2:8] == [
        block.rstrip("\n")
        for block in dedent(
            """\
            Success by steps:

            loop      1 (2 tasks)  2 (1 task)
            react  100 % (34-100)  0 % (0-79)
            rewoo     50 % (9-91)  0 % (0-79)

            By phase, a run's mean:

            loop   phase   model              calls  retries     in  cached  out  seconds      USD
            react  reason  local               2.00     0.00    901       0   40    0.700  0.00070
            react  tools   2.00 (tool calls)                                        0.100
            react  reply   remote              1.00     0.00    100       0   11    0.200  0.00030
            react  in all                      3.00     0.00  1,001       0   51    1.000  0.00100
            rewoo  reason  local               2.00     0.00    901       0   40    0.700  0.00070
            rewoo  tools   2.00 (tool calls)                                        0.100
            rewoo  reply   remote              1.00     0.00    100       0   11    0.200  0.00030
            rewoo  in all                      3.00     0.00  1,001       0   51    1.000  0.00100

            Each two rows on the same tasks:

            row    is               against  tasks    wins  both right  both wrong      p  p (Holm)       token ratio
            react  too few to tell  rewoo        3  1 to 0           1           1  1.000     1.000  1.00 (1.00-1.00)
            """
        ).split("\n\n")
    ]


def test_a_field_that_no_task_has_is_said_with_those_there_are() -> None:
    shown = report.render_text(comparison({"react": "+-"}, about=[{"steps": 1}, {"kind": "a"}]), by="stepps")
    assert "No task has a field 'stepps'. They have: kind, steps." in shown and "Success by" not in shown
    assert "A task's fields stand in its `about`." in report.render_text(comparison({"react": "+"}), by="steps")


def test_each_cell_is_shown_with_its_run_and_what_was_wrong() -> None:
    made = comparison({"react": ["+", "-"]}, who=["a"])
    grade = Grade(False, 0.0, "wrong", "12 was expected, 13 came" + "!" * 200)
    shown = report.render_text(
        structs.replace(made, results=(made.results[0], structs.replace(made.results[1], grade=grade))), cells=True
    )
    head, right, wrong = shown.split("\n\n")[3].split("\n")
    assert head.split() == ["loop", "task", "grade", "steps", "tokens", "seconds", "run", "why"]
    assert right.split() == ["react", "t1", "right", "2", "1,050", "1.00", "run-react", "@", "a-t1-0"]
    assert "run-react @ a-t2-0  12 was expected, 13 came!" in wrong and wrong.endswith("!…")
    assert "| time |" in report.render_markdown(comparison({"react": ["+-"]}), cells=True)
    assert "Each finished cell" not in report.render_text(made)


def test_the_phases_shown_add_up_to_what_is_shown_in_all() -> None:
    phases = (
        spent("reason", "local", 1, (333, 34), 0.3337, 0.0003337),
        spent("tools", "", 1, (0, 0), 0.3338, 0.0),
        spent("reply", "local", 1, (333, 33), 0.3336, 0.0003336),
    )
    made = comparison({"react": "+-+"}, phases=phases)
    other = tuple(structs.replace(part, usage=Usage(334, 35)) if part.calls and part.model else part for part in phases)
    results = (structs.replace(made.results[0], phases=other), *made.results[1:])
    shown = report.render_text(structs.replace(made, results=results), phases=True).split("\n\n")[3].split("\n")
    for name in ("in", "out", "seconds", "USD"):
        end = shown[0].index(f" {name}") + 1 + len(name)  # numbers end where their head does
        *parts, whole = (round(float(line.ljust(end)[:end].split(" ")[-1] or 0) * 1e6) for line in shown[1:])
        assert sum(parts) == whole > 0


def test_a_sum_too_small_for_five_decimals_gets_more() -> None:
    row = report.render_text(comparison({"react": "+", "json": "+"}, cost_usd=0.0000012)).split("\n")[3]
    assert "0.0000012" in row


def test_an_unknown_price_is_a_question_mark_and_estimated_tokens_are_marked() -> None:
    made = comparison({"react": "+-"}, cost_usd=None, usage=Usage(1000, 50, 0, estimated=True))
    shown = report.render_text(made)
    assert "  ~1,050  " in shown and shown.split("\n")[3].split().count("?") == 1
    assert "?: a price is unknown. Add it to [prices] in plait.toml" in shown
    assert "~: tokens estimated from the length of the text." in shown
    assert "In all 2 runs, 2,100 tokens, ? USD." in shown


def test_only_rows_whose_runs_all_did_their_task_have_100_percent() -> None:
    shown = report.render_text(comparison({"a": "+" * 399 + "-", "b": "-" * 399 + "+", "c": "+" * 400}))
    assert [line.split()[1] for line in shown.split("\n")[3:6]] == ["99", "1", "100"]


def test_runs_that_ended_otherwise_are_said() -> None:
    made = comparison({"react": "+-", "json": "+-"})
    results = (made.results[0], structs.replace(made.results[1], status="crashed", fell_back=True), *made.results[2:])
    shown = report.render_text(structs.replace(made, results=results))
    assert "Ended otherwise than answered: react (1 crashed)." in shown
    assert "1 other loop" in shown and "changed: runs that continued as another loop" in shown


def test_many_pairs_are_counted_not_listed() -> None:
    outcomes = {f"good{at}": "+" * 20 for at in range(5)} | {f"bad{at}": "-" * 20 for at in range(5)}
    shown = report.render_text(comparison(outcomes))
    assert shown.count(" is better than ") == 12
    assert "  and 13 more pairs" in shown
    assert "No difference seen" not in shown and "Too few to tell: good0 and good1; good0 and good2; " in shown
    assert "good0 and good3; 17 more. Fewer than 6" in shown
    few = report.render_text(comparison({f"loop{at}": "+-" for at in range(5)}))
    assert "Too few to tell: any two rows. Fewer than 6 tasks differ" in few


def test_tasks_that_ask_the_same_are_repeats_of_one() -> None:
    made = comparison({"react": "+" * 8, "json": "-" * 8})
    assert made.pairs[0].word == "better" and made.pairs[0].p == 2 / 2**8
    same = tuple(structs.replace(task, question="?") for task in made.suite.tasks)
    one = structs.replace(made, suite=structs.replace(made.suite, tasks=same))
    (pair,), row = one.pairs, one.rows[0]
    assert (pair.tasks, pair.wins_a, pair.p, pair.word) == (1, 1, 1.0, "too few to tell")
    assert (row.n, row.tasks, row.worth) == (8, 1, 1.0) and one.by_field("steps")[0].tasks == 1
    shown = report.render_text(one)
    assert shown.startswith("towns: 1 task,") and "runs of one task resemble each other" in shown
    assert report.as_object(one)["tasks"] == 1
    other = structs.replace(same[0], tools=("calculator",)), structs.replace(same[1], now=5.0), *same[2:]
    assert structs.replace(one, suite=structs.replace(one.suite, tasks=other)).pairs[0].tasks == 3


def test_only_as_many_runs_of_both_rows_are_compared() -> None:
    """Else a row that is right at every tenth run seems better in nine tasks of ten than a row like it."""
    made = comparison({"react": ["-+--", *["-+--"] * 7], "json": ["-   ", *["-   "] * 7]})
    (pair,) = made.pairs
    assert (pair.tasks, pair.wins_a, pair.p) == (8, 0, 1.0)
    assert [row.n for row in made.rows] == [32, 8]


def test_a_row_that_is_named_by_its_loop_alone_keeps_its_name() -> None:
    rows = [contender("bot", "m · @a"), contender("bot", "m · @b"), Contender("recorded", "recorded", "m", {"": "m"})]
    assert short_names(rows) == {"bot @ m · @a": "m · @a", "bot @ m · @b": "m · @b", "recorded": "recorded"}


def test_nothing_finished_is_a_table_of_dashes() -> None:
    shown = report.render_text(comparison({"react": "  ", "json": "  "}, unfinished="interrupted"))
    assert shown.split("\n")[3].split() == ["react", *"- 0 - - - - - - - - - - - -".split()]  # noqa: SIM905
    assert shown.endswith("Not finished: 4 of 4 cells: interrupted.")


def test_a_reason_that_only_counts_is_not_said_twice() -> None:
    shown = report.render_text(comparison({"react": "+ "}, unfinished="1 of 2 cells are not finished"))
    assert shown.count("1 of 2 cells") == 1


def test_nothing_to_compare_is_a_title() -> None:
    assert report.render_text(comparison({})) == "towns: 0 tasks"
    assert report.render_markdown(comparison({})) == "**towns: 0 tasks**"
    assert report.render_csv(comparison({})) == "loop,models,success,n\n"


def test_names_can_t_draw_on_the_terminal_or_break_a_line() -> None:
    made = comparison(
        {"re\x1b[31mact": "+", "js\non": "-"}, who="lo\x07cal\u202e", suite="to\x1b]0;x\x07wns", unfinished="a\nb"
    )
    for shown in (report.render_text(made), report.render_markdown(made), report.render_csv(made)):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
        assert "react" in shown and "js on" in shown


# -- values and JSON


def test_comma_separated_values_have_every_digit() -> None:
    made = comparison({"react": "+-+", "json": "++ "}, cost_usd=None)
    first, second = csv.DictReader(io.StringIO(report.render_csv(made)))
    assert float(first["success"]) == 2 / 3
    assert (float(first["interval_low"]), float(first["interval_high"])) == statistics.wilson_interval(2, 3)
    assert (first["cost_usd"], first["models"], first["status_answered"], second["n"]) == ("", "reason=local", "3", "2")


def test_json_names_what_was_compared() -> None:
    told = report.as_object(comparison({"react": "+ ", "json": "+-"}, unfinished="stopped"), cells=True)
    assert {name: told[name] for name in ("name", "suite", "tasks", "repeat", "unfinished")} == {
        "name": "trial",
        "suite": "towns",
        "tasks": 2,
        "repeat": 1,
        "unfinished": "stopped",
    }
    wanted = {"loop", "models", "success", "n", "interval", "steps", "calls", "tokens", "seconds", "cost_usd"}
    assert all(wanted <= set(row) for row in told["rows"])
    assert [(cell["variant"], cell["task"]) for cell in told["cells"]] == [
        ("react @ local", "t1"),
        ("json @ local", "t1"),
        ("json @ local", "t2"),
    ]
    assert told["pairs"][0]["word"] == "too few to tell"
    assert "cells" not in report.as_object(comparison({"react": "+"}))
    assert json.loads(json.dumps(told, allow_nan=False))["rows"][0]["interval"] == list(
        statistics.wilson_interval(1, 1)
    )
