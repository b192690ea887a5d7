"""Makes docs/en/matrix.md and docs/zh/matrix.md: which fault shows where, and what cures it. Everything in it is
emulated.

usage: python -m benchmarks.matrix [--stacks 0.11.0,...] [--chips 310P3,910B3] [--keep DIR] [--from DIR]

For every stack and chip processes run the unmodified vllm-ascend on the emulated chip (`benchmarks.matrix_cell`): the
framework alone, then with ascend-vl; each goes through the faults until one takes its device along. Their raw lines are
kept in DIR; --from makes the tables from kept lines again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascend_vl.adaptations.record import MachineFacts
from ascend_vl.adaptations.registry import by_id
from ascend_vl.language import Text
from npu_emulator.faults import FAULTS, defaults
from npu_emulator.machine import CANN

ROOT = Path(__file__).resolve().parents[1]
STACKS = ("0.11.0", "0.18.0", "0.23.0.post1")
CHIPS = ("310P3", "910B3")
# Rows in the order of the table, with the adaptation that cures each fault. "default" is all that the chip has with the
# CANN of the stack, cured by what cures each of them. Those that take the device along come last.
CURES = {
    "none": "",
    "rotary-fp32": "rotary-dtype",
    "rotary-coarse": "rotary-exact",
    "head-multiple-of-16": "vision-head-width",
    "unpad-zero-length": "vision-lengths",
    "unpad-borders": "vision-operator",
    "unpad-approximate": "vision-exact-kernel",
    "h2d-race": "blocking-copies",
    "index-put": "embedding-merge",
    "no-bf16": "float16",
    "default": "",
    "repeat-crash": "prefix-caching",
}
# The operators in which a fault shows; without a call of one of them it cannot.
OPERATORS = {
    "rotary-fp32": ("npu_rotary_mul",),
    "rotary-coarse": ("npu_rotary_mul",),
    "head-multiple-of-16": (
        "_npu_flash_attention_unpad",
        "_npu_flash_attention_unpad_v2",
        "npu_prompt_flash_attention",
    ),
    "unpad-zero-length": ("_npu_flash_attention_unpad",),
    "unpad-borders": ("_npu_flash_attention_unpad", "_npu_flash_attention_unpad_v2"),
    "unpad-approximate": ("_npu_flash_attention_unpad_v2",),
    "no-bf16": ("npu_format_cast",),
    "repeat-crash": (
        "_npu_paged_attention_splitfuse",
        "_npu_paged_attention_splitfuse_v2",
        "_npu_flash_attention_qlens",
    ),
}
# Features of the tower off by more than this are a failure (relative to the framework without the fault).
SPOILT = 0.1
SECONDS = 3600


@dataclass
class Cell:
    """What one fault did on one stack and chip."""

    stack: str
    chip: str
    fault: str
    stock: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)

    @property
    def fails(self) -> bool:
        """Whether the framework alone fails: with an error, or with features beyond SPOILT."""
        return bool(self.stock.get("error")) or not (self.stock.get("features_off") or 0.0) <= SPOILT

    @property
    def failure(self) -> str:
        """How, in a few words."""
        if self.stock.get("error"):
            return str(self.stock["error"])[:90]
        return f"features off by {100 * self.stock['features_off']:.0f} %"

    @property
    def active(self) -> list[str]:
        """Adaptations in force with ascend-vl."""
        return [
            name for name, state in self.ours.get("states", {}).items() if state in ("active", "unprobed", "forced")
        ]

    @property
    def cured(self) -> bool:
        """Whether with ascend-vl it answers as the framework does without the fault."""
        off = self.ours.get("features_off")
        return not self.ours.get("error") and off is not None and off < 0.02 and self.ours.get("differing_tokens") == 0


def members(stack: str, chip: str, row: str) -> frozenset[str]:
    """The faults of a row that this chip can have.

    Not of "default": the head widths of fused attention, because the text heads of the tiny checkpoint are narrower
    than those of any published one. A property by design of another chip is no fault here.
    """
    named = defaults(chip, CANN[stack]) - {"fia-head-width"} if row == "default" else {row} & set(FAULTS)
    return frozenset(name for name in named if FAULTS[name].kind != "property" or chip in FAULTS[name].chips)


def absent(stack: str, chip: str, row: str) -> bool:
    """Whether this chip cannot have what the row is about, so that nothing is run."""
    return row != "none" and not members(stack, chip, row)


def quiet(cell: Cell, handled: Text | None) -> Text | None:
    """Why a fault does not make the framework fail; None when nobody can say."""
    if absent(cell.stack, cell.chip, cell.fault):
        return Text("not with this chip", "该芯片没有")
    wanted = OPERATORS.get(cell.fault)
    if wanted and not set(wanted) & set(cell.stock.get("called", [])):
        return Text("operator not called", "未调用该算子")
    if handled:
        return Text(f"handled upstream: {handled.en}", f"上游已处理：{handled.zh}")
    return None


def verdict(cell: Cell, handled: Text | None) -> Text:
    """The text of a cell; `handled` says where upstream deals with the fault, None when it does not."""
    if cell.stock and cell.fault == "none":
        return without_fault(cell)
    if not cell.stock or not cell.fails:
        why = quiet(cell, handled) if cell.stock or absent(cell.stack, cell.chip, cell.fault) else None
        return why or (Text("**does not show**", "**未显现**") if cell.stock else Text("not run", "未运行"))
    if not cell.ours:
        return Text(f"fails: {cell.failure}; not run with ascend-vl", f"失败：{cell.failure}；未在 ascend-vl 下运行")
    why = Text(
        str(cell.ours.get("error") or "features or tokens differ"), str(cell.ours.get("error") or "特征或词元不同")
    )
    cure = Text("cured", "已修复") if cell.cured else Text(f"**not cured** ({why.en})", f"**未修复**（{why.zh}）")
    names = listed(cell.active)
    return Text(
        f"fails: {cell.failure}; {cure.en}, active: {names.en}", f"失败：{cell.failure}；{cure.zh}，生效：{names.zh}"
    )


def without_fault(cell: Cell) -> Text:
    """The text of a cell of the first row."""
    alone = Text("answers", "正常回答")
    if cell.fails:
        alone = Text(f"**fails: {cell.failure}**", f"**失败：{cell.failure}**")
    if not cell.ours:
        return alone
    same = Text("the same", "相同") if cell.cured else Text("**differs**", "**不同**")
    names, dispatched = listed(cell.active), cell.ours.get("operators") or {}
    operators = (
        Text(f"the same {dispatched['count']} operators", f"相同的 {dispatched['count']} 个算子")
        if dispatched.get("same")
        else Text("**other operators**", "**算子不同**")
    )
    return Text(
        f"{alone.en}; with ascend-vl: {same.en}, by {operators.en}, active: {names.en}",
        f"{alone.zh}；启用 ascend-vl：{same.zh}，{operators.zh}，生效：{names.zh}",
    )


def listed(names: list[str]) -> Text:
    """Names, or "none"."""
    text = ", ".join(f"`{name}`" for name in names)
    return Text(text or "none", text or "无")


def upstream(stack: str, chip: str, fault: str) -> Text | None:
    """Where this version deals with the fault, in the words of its adaptation's record."""
    # A repeat is dealt with by nobody: it fails or it does not.
    if not CURES.get(fault) or fault == "repeat-crash":
        return None
    applies = by_id(CURES[fault]).applies(MachineFacts(chip=chip, vllm_ascend=stack))
    return applies.reason if applies.verdict != "yes" or applies.on_unprobed is False else None


def run_side(stack: str, chip: str, side: str, faults: list[str], model: Path, log: Path) -> None:
    """Run one process and keep its output in `log`; one that ends early leaves the lines it got to."""
    python = ROOT / f".venv-ascend-{stack}" / "bin" / "python"
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "ASCEND_VL_CACHE": cache,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "VLLM_LOGGING_LEVEL": "WARNING",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        emulate = [sys.executable, "-m", "npu_emulator", "--stack", stack, "--chip", chip, "--"]
        rows = [f"{row}={'+'.join(sorted(members(stack, chip, row)))}" for row in faults]
        cell = [str(python), "-m", "benchmarks.matrix_cell", str(model), "--side", side, "--rows", ",".join(rows)]
        with log.open("w") as out:
            subprocess.run(
                emulate + cell, env=environment, stdout=out, stderr=subprocess.STDOUT, timeout=SECONDS, check=False
            )


def lines(log: Path) -> list[dict[str, Any]]:
    """The result lines of a kept log, none when it is not there."""
    if not log.is_file():
        return []
    texts = (line[5:] for line in log.read_text(errors="replace").splitlines() if line.startswith("CELL "))
    return [json.loads(text) for text in texts]


def collect(stack: str, chip: str, folder: Path, model: Path | None, faults: Iterable[str] = CURES) -> list[Cell]:
    """All cells of one stack and chip, run (with `model`) or read from kept logs."""
    cells = {fault: Cell(stack, chip, fault) for fault in CURES}
    if model is not None:
        wanted = [fault for fault in CURES if fault in faults and not absent(stack, chip, fault)]
        run_through(stack, chip, "stock", wanted, model, folder)
    read(cells, folder, stack, chip, "stock")
    if model is not None:
        failing = [fault for fault in wanted if fault == "none" or (cells[fault].stock and cells[fault].fails)]
        run_through(stack, chip, "ours", failing, model, folder)
    read(cells, folder, stack, chip, "ours")
    return list(cells.values())


def run_through(stack: str, chip: str, side: str, faults: list[str], model: Path, folder: Path) -> None:
    """Run processes until each fault was tried: one ends early when its device is lost. Kept logs go first."""
    for old in folder.glob(f"cell-{stack}-{chip}-{side}-*.log"):
        old.unlink()
    rest = faults
    while rest:
        log = folder / f"cell-{stack}-{chip}-{side}-{len(faults) - len(rest)}.log"
        run_side(stack, chip, side, rest, model, log)
        tried = [line["fault"] for line in lines(log)]
        if not tried:
            print(f"{log}: nothing was tried", file=sys.stderr)
            return
        rest = [fault for fault in rest if fault not in tried]


def read(cells: dict[str, Cell], folder: Path, stack: str, chip: str, side: str) -> None:
    """Put the kept lines of one side into its cells."""
    for line in (line for log in folder.glob(f"cell-{stack}-{chip}-{side}-*.log") for line in lines(log)):
        setattr(cells[line["fault"]], "stock" if side == "stock" else "ours", line)


HEAD = Text(
    """# Faults and cures (emulated)

Everything on this page is emulated: the unmodified vllm-ascend releases ran on a CPU against `npu_emulator`, with one
named fault at a time; `default` is all that the chip has by default with the CANN of that release. It shows that
ascend-vl and the releases agree with our model of the chips; it is no evidence about hardware. Made by `make matrix` at
commit `{commit}`, with the peaked random checkpoint of the tests: text, one and two pictures, greedy.

A cell says how the framework alone fails (error text, or features of the vision tower against the same run without the
fault), where upstream deals with the fault, that the operator is not called, or that this chip is not made that way;
and, for a failure, whether ascend-vl answers as the framework does without the fault (features within 2 %, equal tokens
wherever the choice is not close), with which adaptations in force.

| fault (emulated) | {columns} |
""",
    """# 故障与修复（模拟）

本页全部内容均为模拟：未经修改的 vllm-ascend 各版本在 CPU 上基于 `npu_emulator` 运行，每次只启用一个具名故障；
`default` 为该芯片在该版本 CANN 下默认具有的全部故障。
它说明 ascend-vl 与这些版本符合我们对芯片的模型，不构成硬件证据。
由 `make matrix` 在提交 `{commit}` 上生成，使用测试用的随机权重：纯文本、单图、双图，贪心解码。

单元格说明：框架自身如何失败（错误文本，或视觉塔特征与无故障运行的偏差）、上游在何处已处理、该算子未被调用、或该芯片没有此特性；
对失败项，说明启用 ascend-vl 后回答是否与无故障时一致（特征偏差 2 % 以内，且非临界位置的 token 相同），
以及生效的适配。

| 故障（模拟） | {columns} |
""",
)


def page(cells: list[Cell], commit: str) -> Text:
    """The page in both languages."""
    columns = sorted({(cell.stack, cell.chip) for cell in cells})
    found = {(cell.stack, cell.chip, cell.fault): cell for cell in cells}
    rows = [
        (fault, [verdict(found[stack, chip, fault], upstream(stack, chip, fault)) for stack, chip in columns])
        for fault in CURES
    ]
    names = " | ".join(f"{stack} {chip}" for stack, chip in columns)
    head = HEAD.format(commit=commit, columns=names)
    rule = f"|---|{'---|' * len(columns)}\n"
    tables = [
        "".join(f"| `{fault}` | {' | '.join(text[language] for text in texts)} |\n" for fault, texts in rows)
        for language in (0, 1)
    ]
    return Text(head.en + rule + tables[0], head.zh + rule + tables[1])


def main() -> int:
    """1 when a cell contradicts what ascend-vl promises (`wrong`)."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--stacks", default=",".join(STACKS))
    made.add_argument("--chips", default=",".join(CHIPS))
    made.add_argument("--keep", type=Path, default=ROOT / "out" / "matrix")
    made.add_argument("--from", dest="kept", type=Path)
    made.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = made.parse_args()
    folder = options.kept or options.keep
    folder.mkdir(parents=True, exist_ok=True)
    model = None if options.kept else checkpoint(folder)
    columns = [
        collect(stack, chip, folder, model) for stack in options.stacks.split(",") for chip in options.chips.split(",")
    ]
    cells = [cell for column in columns for cell in column]
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for language, text in zip(("en", "zh"), page(cells, commit.stdout.strip()), strict=True):
        out = options.docs / language / "matrix.md"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    bad = [cell for column in columns for cell in column if wrong(cell, column)]
    for cell in bad:
        text = verdict(cell, upstream(cell.stack, cell.chip, cell.fault)).en
        print(f"{cell.stack} {cell.chip} {cell.fault}: {text}", file=sys.stderr)
    return int(bool(bad))


def wrong(cell: Cell, column: list[Cell]) -> bool:
    """Whether the cell contradicts what ascend-vl promises; `column` is all of its stack and chip."""
    if not cell.stock:
        return not absent(cell.stack, cell.chip, cell.fault)
    if cell.fault != "none" and not cell.fails:
        return quiet(cell, upstream(cell.stack, cell.chip, cell.fault)) is None
    if cell.fault == "none" and (cell.fails or not (cell.ours.get("operators") or {}).get("same")):
        return True
    always = {"prefix-caching"} if cell.stack == "0.11.0" and cell.chip == "310P3" else set()
    needed = expected(cell, column)
    return not cell.cured or not needed <= set(cell.active) <= needed | always


def expected(cell: Cell, column: list[Cell]) -> set[str]:
    """The adaptations that the faults of a row need: of those that fail by themselves, each its own."""
    present = members(cell.stack, cell.chip, cell.fault)
    return {CURES[other.fault] for other in column if other.fault in present and other.stock and other.fails} - {""}


def checkpoint(folder: Path) -> Path:
    """The peaked tiny checkpoint of the tests."""
    sys.path.insert(0, str(ROOT / "tests" / "npu_emulator"))
    import tiny_checkpoint

    return Path(tiny_checkpoint.make(folder / "model"))


if __name__ == "__main__":
    sys.exit(main())
