"""Properties that every pair of answers must have, and the LCS against the textbook."""

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from ascend_vl.verify import metrics
from ascend_vl.verify.fields import typed
from ascend_vl.verify.numbers import quantities

TOKENS = st.lists(st.integers(0, 9) | st.integers(0, 200_000), max_size=40)
FIELDS = st.frozensets(st.tuples(st.sampled_from("abc"), st.tuples(st.just("number"), st.sampled_from("123"))))


def textbook_lcs(a, b):
    """Length of the longest common subsequence, row by row (Wagner and Fischer)."""
    previous = [0] * (len(b) + 1)
    for x in a:
        current = [0]
        for j, y in enumerate(b):
            current.append(previous[j] + 1 if x == y else max(previous[j + 1], current[j]))
        previous = current
    return previous[-1]


@given(TOKENS, TOKENS)
def test_token_match_is_the_textbook_value(a, b):
    longer = max(len(a), len(b))
    assert metrics.token_match(a, b) == (textbook_lcs(a, b) / longer if longer else 1.0)


@given(TOKENS, TOKENS)
def test_token_metrics_are_symmetric_bounded_and_ordered(a, b):
    assert metrics.token_match(a, b) == metrics.token_match(b, a)
    assert metrics.prefix_match(a, b) == metrics.prefix_match(b, a)
    assert 0 <= metrics.prefix_match(a, b) <= metrics.token_match(a, b) <= 1
    assert metrics.first_divergence(a, b) == metrics.first_divergence(b, a)


@given(TOKENS)
def test_identity(a):
    assert metrics.token_match(a, a) == metrics.prefix_match(a, a) == metrics.length_ratio(a, a) == 1
    assert metrics.first_divergence(a, a) is None


@given(st.text(), st.text())
def test_texts(a, b):
    assert metrics.text_similarity(a, b) == metrics.text_similarity(b, a)
    assert 0 <= metrics.text_similarity(a, b) <= 1
    assert metrics.text_similarity(a, a) == 1
    assert metrics.numbers_match(a, a) == 1
    assert metrics.numbers_match(a, b) == metrics.numbers_match(b, a)


@given(FIELDS, FIELDS)
def test_jaccard(a, b):
    score = metrics.jaccard(a, b)
    assert score == metrics.jaccard(b, a)
    assert (score is None) == (not a and not b)
    if a:
        assert metrics.jaccard(a, a) == 1
    if a and b and not a & b:
        assert score == 0


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=3), st.sampled_from(["{}", "= {} 元", "({})", "a {} b"]))
def test_every_decimal_is_read_back_exactly(value, frame):
    found = quantities(frame.format(f"{value:f}"))
    assert len(found) == 1
    assert float(found[0].value) == float(value)


@given(st.integers(0, 10**15))
def test_thousands_separators_do_not_change_a_number(value):
    assert quantities(f"{value:,}") == quantities(f"{value}")


@given(st.integers(-(10**12), 10**12))
def test_typed_integers_equal_their_floats(value):
    assert typed(value) == typed(float(value))


def test_lcs_is_at_least_fifty_times_faster_than_the_textbook():
    generator = random.Random(1)
    a = [generator.randrange(150_000) for _ in range(1000)]
    b = [token if generator.random() < 0.9 else 7 for token in a]

    def best_of(count, function):
        times = []
        for _ in range(count):
            started = time.perf_counter()
            function(a, b)
            times.append(time.perf_counter() - started)
        return min(times)

    assert metrics.token_match(a, b) == textbook_lcs(a, b) / 1000
    assert best_of(2, textbook_lcs) >= 50 * best_of(20, metrics.token_match)
