"""Pictures in a terminal: two pixels a character, with half blocks."""

from PIL import Image
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS = 32
UPPER_HALF = "▀"


def can_draw(console: Console) -> bool:
    """Whether the console is a terminal with at least 256 colours."""
    return console.is_terminal and console.color_system in ("256", "truecolor")


def half_blocks(picture: Image.Image, columns: int = COLUMNS) -> Text:
    """The picture `columns` characters wide; each character shows two pixels, one above the other."""
    width, height = columns, max(2, round(columns * picture.height / picture.width / 2) * 2)
    small = picture.convert("RGB").resize((width, height), Image.Resampling.BOX)
    text = Text()
    for y in range(0, height, 2):
        for x in range(width):
            above, below = (Color.from_rgb(*small.getpixel((x, row))) for row in (y, y + 1))  # type: ignore[misc]
            text.append(UPPER_HALF, Style(color=above, bgcolor=below))
        text.append("\n")
    return text
