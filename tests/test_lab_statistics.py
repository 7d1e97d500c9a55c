"""The lab's statistics against those of SciPy, statsmodels and numpy, and against what they promise."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazily import Lazy
from plait.lab import statistics

stats = Lazy("scipy.stats")
contingency_tables = Lazy("statsmodels.stats.contingency_tables")
linear_model = Lazy("statsmodels.regression.linear_model")
multitest = Lazy("statsmodels.stats.multitest")
proportion = Lazy("statsmodels.stats.proportion")

# -- intervals


def test_wilsons_interval_is_that_of_scipy_and_statsmodels() -> None:
    for n in (1, 2, 5, 17, 60, 1000):
        for successes in sorted({0, 1, n // 3, n - 1, n}):
            ours = statistics.wilson_interval(successes, n)
            theirs = stats.binomtest(successes, n).proportion_ci(method="wilson")
            assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)
            assert ours == pytest.approx(proportion.proportion_confint(successes, n, method="wilson"), abs=1e-12)


def test_no_run_tells_nothing() -> None:
    assert statistics.wilson_interval(0, 0) == (0.0, 1.0)
    assert statistics.success_interval([]) == (0.0, 1.0)


def test_with_one_run_a_task_the_interval_is_plain_wilson() -> None:
    tallies = [(1, 1)] * 20 + [(0, 1)] * 12
    assert statistics.effective_runs(tallies) == 32
    assert statistics.success_interval(tallies) == pytest.approx(statistics.wilson_interval(20, 32), abs=1e-12)


@given(st.lists(st.integers(1, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=30))
def test_runs_are_worth_at_least_their_tasks_and_at_most_themselves(tallies: list[tuple[int, int]]) -> None:
    assert len(tallies) <= statistics.effective_runs(tallies) <= sum(n for _, n in tallies)
    low, high = statistics.success_interval(tallies)
    assert 0 <= low <= high <= 1


def test_runs_that_end_alike_are_worth_one_a_task() -> None:
    alike = [(5, 5)] * 8 + [(0, 5)] * 4
    assert statistics.effective_runs(alike) == 12
    assert statistics.success_interval(alike) == pytest.approx(statistics.wilson_interval(8, 12))


def test_tasks_that_are_all_alike_make_all_runs_count() -> None:
    assert statistics.effective_runs([(2, 4)] * 10) == 40


def test_where_all_runs_succeed_only_the_tasks_count() -> None:
    assert statistics.effective_runs([(5, 5)] * 10) == 10
    assert statistics.success_interval([(5, 5)] * 10) == pytest.approx(statistics.wilson_interval(10, 10))
    assert statistics.effective_runs([(3, 5)]) == 1


def test_the_variance_behind_it_is_statsmodels_cluster_robust_one() -> None:
    dice = np.random.default_rng(5)
    runs = dice.integers(2, 6, 40)
    tallies = [(int(dice.binomial(n, dice.beta(2, 1.5))), int(n)) for n in runs]
    outcomes = np.concatenate([np.r_[np.ones(k), np.zeros(n - k)] for k, n in tallies])
    tasks = np.repeat(np.arange(len(tallies)), runs)
    fit = linear_model.OLS(outcomes, np.ones(len(outcomes))).fit(cov_type="cluster", cov_kwds={"groups": tasks})
    share = outcomes.mean()
    worth = statistics.effective_runs(tallies)
    assert len(tallies) < worth < len(outcomes)
    assert share * (1 - share) / worth == pytest.approx(float(fit.cov_params()[0, 0]), rel=1e-9)


def test_the_interval_holds_the_truth_95_times_of_100_and_wilson_over_all_runs_does_not() -> None:
    dice = np.random.default_rng(1)
    held = plain = 0
    for _ in range(1500):
        right = dice.binomial(5, dice.beta(0.9, 0.6, 30))
        low, high = statistics.success_interval([(int(k), 5) for k in right])
        held += low <= 0.6 <= high
        low, high = statistics.wilson_interval(int(right.sum()), 150)
        plain += low <= 0.6 <= high
    assert 0.93 <= held / 1500 <= 0.98
    assert plain / 1500 < 0.8


# -- the paired test


def test_with_one_run_a_task_it_is_mcnemars_exact_test() -> None:
    for first, second in itertools.product(range(13), repeat=2):
        p = statistics.sign_flip_p([1] * first + [-1] * second + [0] * 7)
        assert p == pytest.approx(contingency_tables.mcnemar([[4, first], [second, 3]], exact=True).pvalue, abs=1e-12)
        if first + second:
            assert p == pytest.approx(stats.binomtest(first, first + second).pvalue, abs=1e-12)


def test_with_thousands_of_tasks_it_is_still_exact() -> None:
    p = statistics.sign_flip_p([1] * 510 + [-1] * 430 + [0] * 4000)
    assert p == pytest.approx(stats.binomtest(510, 940).pvalue, rel=1e-9)
    assert statistics.sign_flip_p([1] * 1100) == 2.0**-1099  # less than this a float can't tell from 0


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.integers(-n, n).map(lambda d: Fraction(d, n)), min_size=2, max_size=11)
    )
)
def test_with_repeats_it_is_scipys_permutation_test(differences: list[Fraction]) -> None:
    # In whole numbers: scipy adds floats, and sums that are equal can differ in their last bit.
    whole = math.lcm(*(each.denominator for each in differences))
    numbers = np.array([int(each * whole) for each in differences], dtype=float)
    if not numbers.any():
        assert statistics.sign_flip_p(differences) == 1.0
        return
    theirs = stats.permutation_test(
        (numbers,), lambda x, axis: x.sum(axis=axis), permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert statistics.sign_flip_p(differences) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_tasks_with_different_numbers_of_runs_are_tested_exactly_too() -> None:
    differences = [Fraction(1, 2), Fraction(-1, 3), Fraction(2, 5), Fraction(1), Fraction(1, 7), Fraction(0)]
    whole = abs(sum(differences))
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    as_far = sum(abs(sum(s * d for s, d in zip(each, differences, strict=True))) >= whole for each in signs)
    assert statistics.sign_flip_p(differences) == as_far / len(signs)


def test_rows_that_are_alike_are_called_different_1_time_of_20_at_most() -> None:
    dice = np.random.default_rng(2)
    wrong = 0
    for _ in range(2000):
        chance = dice.beta(1, 1, 20)
        apart = dice.binomial(3, chance) - dice.binomial(3, chance)
        wrong += statistics.sign_flip_p([Fraction(int(each), 3) for each in apart]) < 0.05
    assert wrong / 2000 <= 0.06


def test_nothing_that_differs_is_no_difference() -> None:
    assert statistics.sign_flip_p([]) == 1.0
    assert statistics.sign_flip_p([Fraction(0)] * 9) == 1.0


def test_five_tasks_that_differ_can_never_tell_and_six_can() -> None:
    assert statistics.sign_flip_p([1] * 5) == statistics.least_p(5) == 0.0625
    assert statistics.sign_flip_p([1] * 6) == statistics.least_p(6) == 0.03125


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holms_adjustment_is_that_of_statsmodels(ps: list[float]) -> None:
    assert statistics.adjust_holm(ps) == pytest.approx(list(multitest.multipletests(ps, method="holm")[1]), abs=1e-12)


def test_of_no_tests_none_is_adjusted() -> None:
    assert statistics.adjust_holm([]) == []


# -- what could have been seen


@pytest.mark.parametrize(("tasks", "differ"), [(20, 0.6), (40, 0.3), (64, 0.4), (150, 0.2)])
def test_the_difference_said_to_be_seen_4_times_of_5_is(tasks: int, differ: float) -> None:
    size = statistics.seeable_difference(tasks, differ)
    assert size is not None
    assert 0.77 <= _seen(tasks, max(differ, size), size) <= 0.95
    assert _seen(tasks, max(differ, size / 2), size / 2) < 0.5


def test_the_same_with_repeats() -> None:
    dice = np.random.default_rng(4)

    def apart(gain: float) -> np.ndarray:
        chance = dice.uniform(0.2, 0.7, 40)
        return (dice.binomial(5, chance + gain) - dice.binomial(5, chance)) / 5

    square = float(np.mean([np.mean(apart(0.14) ** 2) for _ in range(500)]))
    size = statistics.seeable_difference(40, square, 1 / 5)
    assert size is not None and 0.1 < size < 0.2
    seen = sum(
        statistics.sign_flip_p([Fraction(round(each * 5), 5) for each in apart(size)]) < 0.05 for _ in range(1000)
    )
    assert 0.75 <= seen / 1000 <= 0.92


def test_fewer_than_six_tasks_show_no_difference_however_large() -> None:
    assert statistics.seeable_difference(5, 0.4) is None
    assert statistics.seeable_difference(0, 0.0) is None
    assert statistics.seeable_difference(6, 0.0) == pytest.approx(0.99, abs=0.01)


def _seen(tasks: int, differ: float, size: float) -> float:
    """How often a true difference is found, one run a task, when that share of tasks differs."""
    dice = np.random.default_rng(3)
    chances = [(differ + size) / 2, (differ - size) / 2, 1 - differ]
    draws = dice.multinomial(tasks, chances, 2000)
    return float(np.mean([statistics.sign_flip_p([1] * a + [-1] * b) < 0.05 for a, b, _ in draws.tolist()]))


# -- quantiles, what is likely, ratios


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    assert statistics.quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-9)


def test_the_ratio_of_tokens_is_that_of_the_sums_and_the_same_each_time() -> None:
    dice = np.random.default_rng(6)
    pairs = [(float(a), float(b)) for a, b in dice.gamma(4, 300, (60, 2))]
    found = statistics.ratio(pairs)
    assert found is not None and found == statistics.ratio(pairs) != statistics.ratio(pairs, seed=2)
    whole, between = found
    assert whole == pytest.approx(sum(a for a, _ in pairs) / sum(b for _, b in pairs))
    theirs = stats.bootstrap(
        tuple(np.array(pairs).T),
        lambda a, b, axis: a.sum(axis=axis) / b.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=5000,
        rng=np.random.default_rng(7),
    ).confidence_interval
    assert between == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_a_ratio_that_never_varies_has_an_interval_of_no_width() -> None:
    whole, between = statistics.ratio([(2.0, 1.0), (20.0, 10.0), (6.0, 3.0)]) or (math.nan, None)
    assert whole == 2 and between == pytest.approx((2, 2))


def test_there_is_no_ratio_to_nothing_and_no_interval_of_one_task() -> None:
    assert statistics.ratio([]) is None
    assert statistics.ratio([(5.0, 0.0)]) is None
    assert statistics.ratio([(6.0, 3.0)]) == (2.0, None)


def test_the_packages_it_is_checked_against_are_not_needed() -> None:
    script = (
        "import sys, plait.lab.report, plait.lab.statistics\n"
        "print([name for name in ('numpy', 'scipy', 'statsmodels', 'pandas', 'altair') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
