import pytest

from ascend_vl.drawing import attention, budget, settings
from ascend_vl.drawing.lane import LaneSettings
from ascend_vl.drawing.recipes import Constants
from ascend_vl.errors import AscendVLError


def test_defaults_are_the_lanes_own_and_the_ways_to_attend_are_all_known() -> None:
    assert LaneSettings.from_environment() == LaneSettings()
    assert set(settings.WAYS) == set(attention.WAYS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("ACTIVE", "two"), ("ACTIVE", "0"), ("ACTIVE", "1.5"), ("QUEUE", "-1"), ("SLICE_MS", "fast")),
        *(("SLICE_MS", "nan"), ("TIMEOUT", "inf"), ("STUCK", "0"), ("WORKSPACE_MIB", "-5"), ("ATTENTION", "flash")),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_before_a_start(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"ASCEND_VL_DRAWING_{name}", text)
    with pytest.raises(AscendVLError, match="setting-invalid") as refused:
        budget.reserve_bytes(budget.Shape(64, 128, 2, 4, 2, 16, 3072, 2), Constants())
    assert f"ASCEND_VL_DRAWING_{name}={text}" in refused.value.what.en
