"""Does Qwen3-VL work with this release on this chip, and what is the release to take?"""

from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from ascend_vl.language import Text
from ascend_vl.rules.rows import Status, Version
from ascend_vl.rules.table import table
from ascend_vl.rules.versions import version_row

WORDS: dict[str, Text] = {
    "best": Text("the release to use", "推荐使用"),
    "works": Text("works", "可用"),
    "adapted": Text("works with adaptations", "加适配后可用"),
    "unverified": Text("not verified", "未经验证"),
    "fails": Text("fails", "不可用"),
    "unsupported": Text("not supported", "不支持"),
    "unknown": Text("not known", "未知"),
}
GOOD = ("best", "works", "adapted")


@dataclass(frozen=True)
class Verdict:
    """`status` is a word of rows.Status, or `unknown` for a release that is not in the table.

    `move_to` is the release to take instead, with its image; None when this one is the best. `derived` are the lines of
    a derived image that mend what the image ships wrong.
    """

    status: Status | str
    why: Text
    evidence: tuple[str, ...]
    tag: str
    move_to: str | None
    image: str | None
    derived: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether pictures can be served with it."""
        return self.status in GOOD


def best_release(kind: str) -> Version | None:
    """The newest release the table calls best for chips of that kind."""
    wanted = [row for row in table().versions if row.status_on(kind) == "best"]
    return wanted[-1] if wanted else None


def image_of(release: str, kind: str) -> str:
    """The official image of a release for chips of that kind."""
    row = table().images[0]
    return f"{row.repository}:v{release}{row.suffixes.get(kind, '')}"


def release_verdict(release: str | None, kind: str, transformers: str | None = None) -> Verdict:
    """The verdict on a vllm-ascend release for chips of `kind`; `transformers` is what is installed beside it."""
    best = best_release(kind)
    better = best.release if best else None
    row = version_row(release)
    move_to = better if better != release else None
    image = image_of(better, kind) if better and move_to else None
    if row is None:
        why = (
            Text(f"vllm-ascend {release} is not in the rule table.", f"规则表中没有 vllm-ascend {release}。")
            if release
            else Text("vllm-ascend is not installed.", "未安装 vllm-ascend。")
        )
        return Verdict("unknown", why, (), "M", move_to, image)
    status, why = (row.on_310p, row.why_310p) if kind == "310P" else (row.on_a2, row.why_a2)
    if kind == "A5":
        status, why = "unverified", Text("Nothing was surveyed on this chip.", "未调研过该芯片。")
    derived: tuple[str, ...] = ()
    if release and status not in ("unsupported", "fails") and not allows(row.transformers, transformers):
        derived = (f"FROM {image_of(release, kind)}", f'RUN pip install "transformers{pinned(row.transformers)}"')
    return Verdict(status, why, row.evidence, row.tag, move_to, image, derived)


def allows(specifier: str, version: str | None) -> bool:
    """Whether a package version is allowed; an unknown version is."""
    return version is None or SpecifierSet(specifier).contains(version.split("+")[0], prereleases=True)


def pinned(specifier: str) -> str:
    """One version to install: the newest a range names, else the range itself."""
    parts = specifier.split(",")
    exact = next((part for part in parts if part.startswith("==")), None)
    upper = next((part for part in parts if part.startswith("<=")), None)
    return exact or (f"=={upper[2:]}" if upper else specifier)
