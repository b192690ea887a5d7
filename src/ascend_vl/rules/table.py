"""Loading and validating the table. One file a section; ids are unique over all of them."""

import functools
import importlib.resources
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.rules.rows import (
    Chip,
    Condition,
    Flag,
    Image,
    KnownModel,
    Mount,
    Pairing,
    Product,
    Question,
    Row,
    Setting,
    Symptom,
    Variable,
    Version,
)


class Table(BaseModel):
    """All rows, in the order of the files (versions: oldest first)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chips: tuple[Chip, ...]
    products: tuple[Product, ...]
    versions: tuple[Version, ...]
    pairings: tuple[Pairing, ...]
    settings: tuple[Setting, ...]
    flags: tuple[Flag, ...]
    commands: tuple[Condition, ...]
    environment: tuple[Variable, ...]
    images: tuple[Image, ...]
    mounts: tuple[Mount, ...]
    symptoms: tuple[Symptom, ...]
    models: tuple[KnownModel, ...]
    questions: tuple[Question, ...]

    def rows(self) -> Iterator[Row]:
        """Every row, findings of flags and variables included."""
        for name in type(self).model_fields:
            for row in getattr(self, name):
                yield row
                if isinstance(row, (Flag, Variable)):
                    yield from row.findings

    def by_id(self, row_id: str) -> Row | None:
        """The row with that id."""
        return next((row for row in self.rows() if row.id == row_id), None)

    def setting(self, row_id: str) -> float:
        """The number of a setting. Raises KeyError for an id that is not there."""
        for row in self.settings:
            if row.id == row_id:
                return row.value
        raise KeyError(row_id)


FILES = (
    "chips",
    "versions",
    "settings",
    "flags",
    "environment",
    "containers",
    "symptoms",
    "logs",
    "complaints",
    "models",
    "questions",
)


def read(documents: dict[str, dict[str, Any]]) -> Table:
    """The table of parsed documents (file name without suffix: its sections; a section may go on in another file).

    Raises AscendVLError `rules-invalid` when a row misses a part or an id appears twice.
    """
    sections: dict[str, Any] = {}
    for document in documents.values():
        for name, rows in document.items():
            sections.setdefault(name, []).extend(rows)
    try:
        found = Table.model_validate(sections)
    except ValidationError as error:
        raise _invalid(str(error)) from None
    seen: set[str] = set()
    for row in found.rows():
        if row.id in seen:
            raise _invalid(f"id {row.id} appears twice")
        seen.add(row.id)
    return found


def _invalid(detail: str) -> AscendVLError:
    return AscendVLError(
        "rules-invalid",
        Text("The rule table of this installation does not load.", "本安装的规则表无法加载。"),
        Text(detail, detail),
        Text("Reinstall ascend-vl.", "请重新安装 ascend-vl。"),
    )


def documents() -> dict[str, dict[str, Any]]:
    """The YAML files of this installation, parsed."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    folder = importlib.resources.files("ascend_vl.rules") / "data"
    return {name: yaml.load((folder / f"{name}.yaml").read_text(encoding="utf-8"), Loader=loader) for name in FILES}


@functools.cache
def table() -> Table:
    """The table of this installation."""
    return read(documents())
