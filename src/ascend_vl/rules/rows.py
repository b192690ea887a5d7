"""The shape of every row of the table. A row without evidence, date, tag or one of its two languages does not load."""

import datetime
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ascend_vl.language import Text

Tag = Literal["S", "U", "M", "H"]
Severity = Literal["error", "warning", "note"]
# From best to worst. `unsupported` means vllm-ascend itself does not run there.
Status = Literal["best", "works", "adapted", "unverified", "fails", "unsupported"]

TAGS: dict[str, Text] = {
    "S": Text("read in upstream source or package", "来自上游源码或发布包"),
    "U": Text("said by a user or maintainer in public", "来自公开讨论中的用户或维护者"),
    "M": Text("measured or computed on a CPU", "在 CPU 上测得或算得"),
    "H": Text("a hypothesis, not proven", "推测，未经证实"),
}


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) != {"en", "zh"} or not all(isinstance(v, str) and v.strip() for v in value.values()):
            raise ValueError("a text needs en and zh, both not empty")
        return Text(value["en"].strip(), value["zh"].strip())
    return value


BothLanguages = Annotated[Text, BeforeValidator(_text)]


def spelled(evidence: str) -> str:
    """Evidence as a reader needs it: an address as it is, a published port by its name."""
    if not evidence.startswith("port:"):
        return evidence
    name = evidence.removeprefix("port:")
    return str(Text(f"published port {name} (tests/data/ports)", f"已发布的移植 {name}（tests/data/ports）"))


class Row(BaseModel):
    """What every row has: a stable id, a title and a text in both languages, and where it is known from.

    `evidence` holds web addresses, or `port:NAME` for one of the two published ports (tests/data/ports).
    `date` is when the evidence was last read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$")
    title: BothLanguages
    text: BothLanguages
    evidence: tuple[str, ...] = Field(min_length=1)
    date: datetime.date
    tag: Tag

    @field_validator("evidence")
    @classmethod
    def _evidence(cls, links: tuple[str, ...]) -> tuple[str, ...]:
        for link in links:
            if not re.match(r"^(https://\S+|port:[a-z0-9-]+)$", link):
                raise ValueError(f"evidence must be an https address or port:NAME, not {link!r}")
        return links


class When(BaseModel):
    """The machine a row speaks of; empty fields match everything. vllm-ascend is at least `since`, below `before`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    since: str | None = None
    before: str | None = None
    tensor_parallel: bool = False
    vision_head_not_multiple_of_16: bool = False


class Chip(Row):
    """A chip: how npu-smi and vllm-ascend name it, and what it cannot do."""

    kind: Literal["310P", "A2", "A3", "A5", "none"]
    npu_smi: tuple[str, ...]
    soc_versions: tuple[str, ...]
    torch_npu_soc_ids: tuple[int, int] | None
    bf16: bool


class Product(Row):
    """A card or server as it is bought."""

    aliases: tuple[str, ...]
    chip: str
    chips_per_card: int
    usual_chips: tuple[int, ...]
    memory_gib: float
    shares_host_memory: bool = False


class Version(Row):
    """One vllm-ascend release: what it is built of, and whether Qwen3-VL works there on each kind of chip.

    `padded_heads_only` says that the 310P verdict holds only for vision heads that are no multiple of 16 wide.
    """

    released: datetime.date | None
    vllm: str
    python: tuple[str, str]
    cann: str | None
    cann_310p: str | None
    torch: str
    torch_npu: str
    triton_ascend: str | None
    transformers: str
    image_transformers: str | None = None
    image_310p: bool
    padded_heads_only: bool = False
    on_310p: Status
    why_310p: BothLanguages
    on_a2: Status
    why_a2: BothLanguages

    @property
    def release(self) -> str:
        """The version, as vllm-ascend spells it."""
        return self.id.removeprefix("vllm-ascend-")

    def status_on(self, kind: str) -> Status:
        """The verdict for chips of that kind."""
        return self.on_310p if kind == "310P" else self.on_a2


class Pairing(Row):
    """A pair of host driver and CANN (or of packages) that is known to matter."""

    driver: str | None = None
    cann: str | None = None
    verdict: Literal["works", "unstable", "fails", "unknown"]


class Condition(Row):
    """A finding about a flag or a variable on some machines.

    It fires when the flag is given and `value` (a regular expression, searched, case-insensitive), `above` (a number)
    or `sizes_above` (graph capture sizes in a JSON value) says so; with `absent` when the flag is not given at all.
    `replace_with` is the repaired value; "" takes the flag out; with `absent` it is what is added.
    """

    when: When = When()
    absent: bool = False
    value: str | None = None
    above: float | None = None
    sizes_above: int | None = None
    severity: Severity
    fix: BothLanguages
    replace_with: str | None = None


class Flag(Row):
    """One `vllm serve` flag: its spellings, its negative form, what it takes, and what to say about it where."""

    name: str = Field(pattern=r"^--[a-z0-9-]+$")
    spellings: tuple[str, ...] = ()
    negative: str | None = None
    takes: Literal["value", "json", "nothing", "many"]
    findings: tuple[Condition, ...] = ()


class Variable(Row):
    """One environment variable and what to say about it where."""

    name: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    findings: tuple[Condition, ...] = ()


class Image(Row):
    """A container repository and how its tags are made."""

    repository: str
    mirrors: tuple[str, ...]
    suffixes: dict[str, str]


class Mount(Row):
    """A path or device a container needs."""

    path: str
    what: Literal["device", "file", "directory"]
    products: tuple[str, ...] = ()
    required: bool


class Cause(BaseModel):
    """One possible cause of an error, most likely first; `weight` ranks causes over all errors matched (0 to 1)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$")
    when: When = When()
    weight: float = Field(gt=0, le=1)
    text: BothLanguages
    do: BothLanguages
    adaptation: str | None = None
    evidence: tuple[str, ...] = Field(min_length=1)


class Symptom(Row):
    """An error code or a line of a log: patterns that recognise it (case-insensitive), and its causes."""

    code: str | None = None
    patterns: tuple[str, ...] = Field(min_length=1)
    causes: tuple[Cause, ...] = Field(min_length=1)

    @field_validator("patterns")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            re.compile(pattern, re.IGNORECASE)
        return patterns


class Setting(Row):
    """A number the planner uses, with its unit."""

    value: float
    unit: str


class Question(Row):
    """What nobody has measured on hardware: `text` is the guess, `probe` the question of the field report that retires
    it, `fault` and `fine` what its answer means.
    """

    probe: str
    fault: BothLanguages
    fine: BothLanguages


class KnownModel(Row):
    """A published checkpoint, by the numbers of its config.json."""

    repository: str
    aliases: tuple[str, ...]
    family: Literal["qwen3-vl", "qwen3-vl-moe", "hidream-o1"]
    config: dict[str, Any]
    stored_dtype: Literal["bfloat16", "float32"]
