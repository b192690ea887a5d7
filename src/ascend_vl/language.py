"""Which of the two languages is spoken, and pairs of texts in both."""

import locale
import os
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]

_current: Language | None = None


class Text(NamedTuple):
    """The same sentence in English and Chinese; `str()` gives the one that is spoken now."""

    en: str
    zh: str

    def __str__(self) -> str:
        return self.zh if language() == "zh" else self.en

    def format(self, **values: object) -> "Text":  # type: ignore[override]
        """Both languages with the same values filled in."""
        return Text(self.en.format(**values), self.zh.format(**values))


def language() -> Language:
    """What `--lang` said, else `ASCEND_VL_LANG`, else the locale."""
    if _current is not None:
        return _current
    wanted = os.environ.get("ASCEND_VL_LANG") or os.environ.get("LC_ALL") or os.environ.get("LANG")
    if not wanted:
        wanted = locale.getlocale()[0] or "en"
    return "zh" if wanted.lower().startswith(("zh", "chinese")) else "en"


def speak(chosen: Language | None) -> None:
    """Set the language of this process (None: by environment)."""
    global _current
    _current = chosen
