from PIL import Image
from rich.console import Console

from ascend_vl.demo.terminal import can_draw, half_blocks


def test_two_pixels_a_character() -> None:
    picture = Image.new("RGB", (4, 4), "red")
    picture.paste((0, 0, 255), (0, 2, 4, 4))
    text = half_blocks(picture, columns=2)
    assert text.plain == "▀▀\n"
    style = text.spans[0].style
    assert style.color.triplet == (255, 0, 0)  # type: ignore[union-attr]
    assert style.bgcolor.triplet == (0, 0, 255)  # type: ignore[union-attr]


def test_a_pipe_is_not_drawn_into() -> None:
    assert not can_draw(Console(force_terminal=False))
    assert can_draw(Console(force_terminal=True, color_system="256"))
    assert not can_draw(Console(force_terminal=True, color_system=None))
