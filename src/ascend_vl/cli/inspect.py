"""`ascend-vl inspect MODEL`: what a checkpoint is and whether it can be served, from headers only."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ascend_vl.cli import output
from ascend_vl.language import Text

if TYPE_CHECKING:
    from ascend_vl.checkpoint import Checkpoint

_VERDICTS = {
    "servable": Text("servable", "可以部署"),
    "servable with warnings": Text("servable with warnings", "可以部署，但有警告"),
    "not servable": Text("not servable", "不能部署"),
}


def command(
    model: Annotated[str, typer.Argument(help="model directory, hub cache entry, safetensors file, or repository id")],
    source: Annotated[str | None, typer.Option("--from", help="modelscope | huggingface, for a repository id")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="branch, tag or commit of a repository")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """What a checkpoint is and whether it can be served, from headers only. Exit 1 when it cannot."""

    def body() -> int:
        from ascend_vl.checkpoint import inspect_checkpoint

        checkpoint = inspect_checkpoint(model, source=source, revision=revision)
        if as_json:
            output.print_json(checkpoint.to_json())
        else:
            show(checkpoint)
        return 1 if checkpoint.verdict == "not servable" else 0

    output.run(body, as_json=as_json, lang=lang)


def show(checkpoint: "Checkpoint") -> None:
    """The facts, the defects with what to do, and the verdict."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in facts(checkpoint):
        table.add_row(str(label), escape(value))
    output.console.print(table)
    for item in sorted(checkpoint.defects, key=lambda found: list(output.COLOURS).index(found.severity)):
        colour, word = output.COLOURS[item.severity], output.SEVERITIES[item.severity]
        output.console.print(f"[{colour}]{word}[/{colour}] \\[{item.code}] {escape(str(item.what))}")
        if item.severity != "note":
            output.console.print(f"  {Text('do', '处理')}: {escape(str(item.do))}")
    colour = {"servable": "green", "servable with warnings": "yellow"}.get(checkpoint.verdict, "red")
    output.console.print(f"[{colour}]{_VERDICTS[checkpoint.verdict]}[/{colour}]")


def facts(checkpoint: "Checkpoint") -> list[tuple[Text, str]]:
    """(label, value) lines of the table."""
    dtypes = ", ".join(f"{dtype} {count:,}" for dtype, count in checkpoint.dtypes.items())
    lines = [
        (Text("path", "路径"), checkpoint.path),
        (Text("family", "系列"), checkpoint.family),
        (Text("parameters", "参数量"), f"{checkpoint.parameters:,} ({checkpoint.bytes / 2**30:.2f} GiB; {dtypes})"),
    ]
    text, vision = checkpoint.text, checkpoint.vision
    if text is not None:
        experts = f", {text.experts} experts" if text.experts else ""
        shape = f"{text.layers} x {text.hidden}, {text.heads}/{text.kv_heads} heads x {text.head_dim}{experts}"
        lines.append((Text("text", "文本"), f"{shape}, vocab {text.vocab}, {text.max_positions} positions"))
    if vision is not None:
        shape = f"{vision.depth} x {vision.hidden}, {vision.heads} heads x {vision.head_dim}"
        deep = ", ".join(map(str, vision.deepstack))
        lines.append((Text("vision", "视觉"), f"{shape}, patch {vision.patch}, merge {vision.merge}, deepstack {deep}"))
    if checkpoint.extra_tensors:
        lines.append((Text("pixel head", "像素头"), f"{len(checkpoint.extra_tensors)} / 9"))
    if checkpoint.quantisation is not None:
        lines.append((Text("quantised", "量化"), checkpoint.quantisation.summary))
    return lines
