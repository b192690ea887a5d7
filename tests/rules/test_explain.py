"""Everything has an explanation."""

import pytest

from ascend_vl.adaptations import RECORDS
from ascend_vl.machine.describe import describe
from ascend_vl.rules import table
from ascend_vl.rules.explain import explain, own_errors


def test_every_row_cause_and_adaptation() -> None:
    wanted = [row.id for row in table().rows()] + [record.id for record in RECORDS]
    wanted += [cause.id for symptom in table().symptoms for cause in symptom.causes]
    for name in wanted:
        found = explain(name)
        assert found is not None, name
        assert found.lines and found.title.en and found.title.zh
        assert found.evidence, name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("507018", "error-507018"),
        ("0.18.0", "vllm-ascend-0.18.0"),
        ("--dtype", "flag-dtype"),
        ("HCCL_OP_EXPANSION_MODE", "env-hccl-op-expansion-mode"),
        ("embedding-merge", "embedding-merge"),
    ],
)
def test_by_other_names(name: str, found: str) -> None:
    explanation = explain(name)
    assert explanation is not None and explanation.id == found


@pytest.mark.parametrize("name", ["", "nothing-like-that", "   "])
def test_nothing_is_made_up(name: str) -> None:
    assert explain(name) is None


def test_errors_of_this_package_are_read_from_its_source() -> None:
    codes = {error.code: error for error in own_errors()}
    assert {"unknown-chip", "does-not-fit", "version-cannot-serve", "wish-impossible", "rules-invalid"} <= set(codes)
    assert {"drawing-busy", "drawing-memory", "drawing-unavailable"} <= set(codes)
    assert codes["does-not-fit"].exit_code == 1
    assert codes["unknown-chip"].exit_code == 2
    assert "{...}" in codes["unknown-chip"].what.en
    explanation = explain("unknown-chip")
    assert explanation is not None and explanation.id == "unknown-chip"


def test_the_error_raised_is_the_error_documented() -> None:
    with pytest.raises(Exception, match="unknown-chip") as caught:
        describe(chip="h100")
    assert caught.value.exit_code == next(e.exit_code for e in own_errors() if e.code == "unknown-chip")  # type: ignore[attr-defined]
