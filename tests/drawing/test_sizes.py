import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_vl.drawing import sizes
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.recipes import Constants

C = Constants()


def test_auto_is_the_checkpoints_size() -> None:
    assert sizes.parse_size("auto", C) == (2048, 2048)
    assert sizes.parse_size("auto", Constants(default_size=(128, 128))) == (128, 128)


@pytest.mark.parametrize("text", ["", "512", "512x", "axb", "-32x32", "512x512x3", "1e3x32", "9" * 9 + "x32"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        sizes.parse_size(text, C)
    assert refused.value.param == "size"


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_multiples_are_drawn_as_asked_and_others_get_the_nearest(width: int, height: int) -> None:
    if width % 32 == 0 and height % 32 == 0:
        sizes.check_size(width, height, C)
        return
    with pytest.raises(Refusal) as refused:
        sizes.check_size(width, height, C)
    near = sizes.nearest(width, height, C)
    assert f"{near[0]}x{near[1]}" in refused.value.do.en
    sizes.check_size(*near, C)
    assert abs(near[0] - width) <= max(16, 32 - width) and abs(near[1] - height) <= max(16, 32 - height)


@pytest.mark.parametrize(
    ("asked", "listed"),
    [((512, 512), (2048, 2048)), ((1024, 1536), (1664, 2496)), ((100, 30), (3104, 1312)), ((1920, 1080), (2560, 1440))],
)
def test_snapping_follows_the_aspect_and_ignores_the_area(asked: tuple[int, int], listed: tuple[int, int]) -> None:
    assert sizes.snap(*asked, C) == listed


def test_zero_is_refused() -> None:
    with pytest.raises(Refusal):
        sizes.check_size(0, 32, C)
    with pytest.raises(Refusal):
        sizes.snap(0, 32, C)
