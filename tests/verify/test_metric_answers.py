"""Known answers: every pair below was worked out by hand. LCS lengths are in the comments where they are not plain."""

import math

import pytest

from ascend_vl.verify import metrics
from ascend_vl.verify.alarms import degenerate
from ascend_vl.verify.fields import declared, pairs, read_fields, typed
from ascend_vl.verify.numbers import quantities

# base, candidate, token_match, prefix_match, first_divergence, length_ratio
TOKENS = [
    ([], [], 1.0, 1.0, None, 1.0),
    ([], [1], 0.0, 0.0, 0, None),
    ([1], [], 0.0, 0.0, 0, 0.0),
    ([7], [7], 1.0, 1.0, None, 1.0),
    ([7], [8], 0.0, 0.0, 0, 1.0),
    ([1, 2, 3], [1, 2, 3], 1.0, 1.0, None, 1.0),
    ([1, 2, 3], [1, 2], 2 / 3, 2 / 3, 2, 2 / 3),
    ([1, 2], [1, 2, 3], 2 / 3, 2 / 3, 2, 1.5),
    ([1, 2, 3, 4], [1, 9, 3, 4], 3 / 4, 1 / 4, 1, 1.0),
    ([1, 2, 3, 4], [4, 3, 2, 1], 1 / 4, 0.0, 0, 1.0),
    ([1, 2, 3, 4], [2, 3, 4, 1], 3 / 4, 0.0, 0, 1.0),
    ([1, 1, 1, 1], [1, 1], 1 / 2, 1 / 2, 2, 1 / 2),
    ([1, 2, 1, 2], [2, 1, 2, 1], 3 / 4, 0.0, 0, 1.0),
    # LCS of 1..10 and the same with one inserted: 10 of 11.
    (list(range(10)), [*range(5), 99, *range(5, 10)], 10 / 11, 5 / 11, 5, 1.1),
    # The textbook's ABCBDAB against BDCABA: length 4 of 7.
    ([1, 2, 3, 2, 4, 1, 2], [2, 4, 3, 1, 2, 1], 4 / 7, 0.0, 0, 6 / 7),
    # -1 and -2 share a hash in CPython; ids near 2**31 do not collide with small ones.
    ([2**31, 5], [2**31 - 1, 5], 1 / 2, 0.0, 0, 1.0),
    # 9 of 10 equal: exactly the port's 0.90.
    (list(range(10)), [*range(9), 77], 0.9, 0.9, 9, 1.0),
]


@pytest.mark.parametrize(("base", "candidate", "match", "prefix", "divergence", "ratio"), TOKENS)
def test_token_metrics(base, candidate, match, prefix, divergence, ratio):
    assert metrics.token_match(base, candidate) == match
    assert metrics.prefix_match(base, candidate) == prefix
    assert metrics.first_divergence(base, candidate) == divergence
    assert metrics.length_ratio(base, candidate) == ratio


# base, candidate, normalised Indel: 1 - (n + m - 2 LCS) / (n + m) over characters
TEXTS = [
    ("", "", 1.0),
    ("", "abc", 0.0),
    ("abc", "abc", 1.0),
    ("abcd", "abce", 0.75),  # LCS 3: 1 - 2/8
    ("lewenstein", "levenshtein", 1 - 3 / 21),  # LCS 9
    ("红色圆形", "红色方形", 0.75),  # LCS 3: 1 - 2/8
    ("kitten", "sitting", 1 - 5 / 13),  # LCS 4
    ("A", "a", 0.0),
]


@pytest.mark.parametrize(("base", "candidate", "similarity"), TEXTS)
def test_text_similarity(base, candidate, similarity):
    assert metrics.text_similarity(base, candidate) == pytest.approx(similarity, abs=1e-12)


# text A, text B, numbers_match
NUMBERS = [
    ("", "", 1),
    ("no number", "none here", 1),
    ("The total is 1024.50.", "The total is 1042.50.", 0),
    ("The total is 1024.50.", "A total of 1,024.5", 1),
    ("合计1024.50元", "合计 ¥1,024.50", 1),
    ("合计1024.50元", "合计1024.50美元", 0),
    ("5 kg", "5 g", 0),
    ("5 kg", "5千克", 1),
    ("5%", "5 percent", 1),
    ("50%", "百分之五十", 1),
    ("-5 °C", "5 °C", 0),
    ("2024-05-01", "2024年5月1日", 1),
    ("2024-05-01", "May 1, 2024", 1),
    ("1 May 2024", "May 1st, 2024", 1),
    ("2024-05-01", "2024-01-05", 0),
    ("05/06/2024", "06/05/2024", 0),
    ("3:30 pm", "15:30", 1),
    ("3:30 am", "15:30", 0),
    ("1.5万人", "15000人", 1),
    ("three circles", "3 circles", 1),
    ("three circles", "two circles", 0),
    ("twenty-one", "21", 1),
    ("one hundred and five", "105", 1),
    ("三个圆", "3个圆", 1),
    ("三角形", "圆形", 1),  # a triangle is not a number
    ("第三章", "第3章", 1),
    ("一千零二十四件", "1024件", 1),
    ("room 007", "room 7", 0),
    ("v1.2.3", "v1.2.4", 0),
    ("3 cats, 5 dogs", "5 cats, 3 dogs", 0),  # the order is part of what is said
    ("1.024,50 EUR", "1024.50 EUR", 1),
    ("1e-3", "0.001", 1),
    ("２０２４年", "2024年", 1),
    ("2 million", "2000000", 1),
    ("1,2,3", "1, 2, 3", 1),
    ("pages 3-5", "pages 3 to 5", 1),
    ("12345678901234567890", "12345678901234567891", 0),
    ("0.1", "0.10000000000000001", 0),
]


@pytest.mark.parametrize(("base", "candidate", "match"), NUMBERS)
def test_numbers_match(base, candidate, match):
    assert metrics.numbers_match(base, candidate) == match
    assert metrics.numbers_match(candidate, base) == match


def test_quantities_are_listed_in_order_with_units():
    text = "On May 5, 2024 at 3:30 pm: $1,024.50 (up 5%), 有三个圆, room 007"
    assert [tuple(q) for q in quantities(text)] == [
        ("date", "2024-05-05", ""),
        ("time", "15:30:00", ""),
        ("number", "1024.5", "USD"),
        ("number", "5", "%"),
        ("number", "3", ""),
        ("code", "007", ""),
    ]


# base fields, candidate fields, declared types, Jaccard
FIELDS = [
    ({"a": 1}, {"a": 1}, {}, 1.0),
    ({"a": 1}, {"a": 2}, {}, 0.0),
    ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {}, 1 / 3),
    ({"a": 1, "b": 2}, {"a": 1}, {}, 1 / 2),
    ({"a": 1.0}, {"a": 1}, {}, 1.0),
    ({"a": "5"}, {"a": 5}, {}, 0.0),
    ({"a": "5"}, {"a": 5}, {"a": "number"}, 1.0),
    ({"a": "1,024.50"}, {"a": "1024.5"}, {"a": "number"}, 1.0),
    ({"a": "2024-05-01"}, {"a": "1 May 2024"}, {"a": "date"}, 1.0),
    ({"a": "是"}, {"a": "yes"}, {"a": "boolean"}, 1.0),
    ({"a": True}, {"a": 1}, {}, 0.0),
    ({"a": "x  y"}, {"a": "x y"}, {}, 1.0),
    ({"a": [{"c": 1}]}, {"a": [{"c": 1.0}]}, {}, 1.0),
    ({"a": "red"}, {"b": "red"}, {}, 0.0),
    ({}, {"a": 1}, {}, 0.0),
    ({}, {}, {}, None),
]


@pytest.mark.parametrize(("base", "candidate", "kinds", "score"), FIELDS)
def test_key_fields(base, candidate, kinds, score):
    wanted = declared(kinds)
    assert metrics.jaccard(pairs(base, wanted), pairs(candidate, wanted)) == score


# answer, declaration, what is read
READ = [
    ('{"total": 5, "who": "A"}', ["total", "who"], {"total": 5, "who": "A"}),
    ('Here:\n```json\n{"total": 5}\n```', ["total"], {"total": 5}),
    ('[{"shape": "circle"}, {"shape": "star"}]', ["shape"], {"shape": ["circle", "star"]}),
    ('{"a": {"b": 1}}', ["a.b"], {"a.b": 1}),
    ("Total: 12.50\nDate: 2024-05-01", ["total", "date"], {"total": "12.50", "date": "2024-05-01"}),
    ("总计：12元", ["总计"], {"总计": "12元"}),
    ("Invoice no. A-17", {"no": {"pattern": r"no\. (\S+)"}}, {"no": "A-17"}),
    ("A red circle.", [{"name": "colour", "value": "red"}], {"colour": "red"}),
    ("A blue circle.", [{"name": "colour", "value": "red"}], {}),
    ("A tired dog.", [{"name": "colour", "value": "red"}], {}),
    ("There are two shapes.", [{"name": "count", "value": 2}], {"count": 2}),
    ("有两个图形", [{"name": "count", "value": 2}], {"count": 2}),
    ("有三个图形", [{"name": "count", "value": 2}], {}),
    ("红色圆形", {"colour": "红色"}, {"colour": "红色"}),
    ("nothing", ["total"], {}),
]


@pytest.mark.parametrize(("text", "declaration", "found"), READ)
def test_fields_are_read_from_the_answer(text, declaration, found):
    assert read_fields(text, declared(declaration)) == found


def test_a_number_is_typed_by_value_not_by_spelling():
    assert typed(1e3) == typed(1000) == ("number", "1000")


# answer, token ids, flags
DEGENERATE = [
    ("A red circle on white.", None, []),
    ("", None, ["empty"]),
    (" \n", None, ["empty"]),
    ("!!!!!!!!!!", None, ["zero_run"]),
    ("Great!!!", None, []),
    ("x", [0] * 8, ["zero_run"]),
    ("x", [0] * 7, []),
    ("the the the the the the the", None, ["repetition"]),
    ("我看到一只猫。" * 7, None, ["repetition"]),
    ("x", [1, 2] * 100, ["repetition"]),
    ("x", list(range(200)), []),
    ("|---|---|---|---|---|---|---|---|", None, []),
    ("-" * 200, None, []),
    ("ab\ufffd", None, ["garble"]),
    ("a\x00b", None, ["garble"]),
    ("表格\t一\n二", None, []),
]


@pytest.mark.parametrize(("text", "token_ids", "flags"), DEGENERATE)
def test_degenerate_answers(text, token_ids, flags):
    assert degenerate(text, token_ids) == flags


def test_there_are_more_than_forty_pairs():
    assert len(TOKENS) + len(TEXTS) + len(NUMBERS) + len(FIELDS) > 40
    assert not math.isnan(sum(row[2] for row in TOKENS))
