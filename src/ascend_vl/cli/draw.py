"""`ascend-vl draw TARGET PROMPT -o OUT.png`: one picture from a server or a model."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ascend_vl.cli import output
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}


def command(
    target: Annotated[str, typer.Argument(help="http://HOST:PORT, a model directory, or transformers:DIRECTORY")],
    prompt: Annotated[str, typer.Argument(help="what to draw, or how to change the references")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the picture to write: .png, .jpg or .webp")],
    image: Annotated[list[Path] | None, typer.Option(help="a reference picture; up to 10")] = None,
    layout: Annotated[str | None, typer.Option(help="boxes [[x1, x2, y1, y2], ...] as JSON, or a file")] = None,
    recipe: Annotated[str | None, typer.Option(help="full | dev | dev-2604; default: the checkpoint's")] = None,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT, multiples of 32, or auto")] = "auto",
    snap: Annotated[bool, typer.Option("--snap", help="the reference's listed size of the nearest aspect")] = False,
    keep_aspect: Annotated[bool, typer.Option("--keep-aspect", help="size from the one reference")] = False,
    steps: Annotated[int | None, typer.Option(help="denoising steps")] = None,
    seed: Annotated[int | None, typer.Option(help="default: random, and told")] = None,
    guidance: Annotated[float | None, typer.Option(help="guidance scale; above 1 doubles the work")] = None,
    shift: Annotated[float | None, typer.Option(help="shift of the full recipe's schedule")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="bitwise repeatable")] = False,
    label: Annotated[bool, typer.Option("--label", help="also a visible label; the metadata always has one")] = False,
    preview: Annotated[Path | None, typer.Option(help="keep the newest preview in this file")] = None,
    trace: Annotated[Path | None, typer.Option(help="write every step's arrays to this .npz")] = None,
    dtype: Annotated[str | None, typer.Option(help="for a directory: float32, bfloat16 or float16")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="ASCEND_VL_API_KEY", help="for a server that wants one")] = None,
    as_json: output.Json = False,
    lang: output.Lang = None,
) -> None:
    """Draw one picture; a directory is served for it and stopped."""

    def body() -> int:
        from ascend_vl.verify import targets

        output_format = _format(out)
        targets.check_dtype(dtype)
        fields: dict[str, Any] = {
            "output_format": output_format,
            "layout": _layout(layout) if layout else None,
            "recipe": recipe,
            "size": size,
            "snap": snap or None,
            "keep_aspect": keep_aspect or None,
            "steps": steps,
            "seed": seed,
            "guidance_scale": guidance,
            "shift": shift,
            "exact": exact or None,
            "label": label or None,
            "trace": trace is not None or None,
            "partial_images": 3 if preview else None,
        }
        with _drawing() as (on_progress, on_preview_file):
            answer = draw(
                targets.parse(target),
                *(prompt, image or [], fields, dtype, api_key),
                on_progress=on_progress,
                on_preview=None if preview is None else on_preview_file(preview),
            )
        _write(out, answer.data)
        if trace is not None and answer.trace is not None:
            _write(trace, answer.trace)
        told = {
            "out": str(out),
            "size": answer.size,
            "seed": answer.seed,
            "recipe": answer.recipe,
            "usage": answer.usage,
        }
        if as_json:
            output.print_json({"schema": 1, **told, "trace": str(trace) if trace else None})
        else:
            what = Text("drawn", "已绘制")
            output.console.print(f"{what}: {out}  {answer.size}  seed {answer.seed}  {answer.recipe}", markup=False)
        return 0

    output.run(body, as_json=as_json, lang=lang)


def draw(
    target: Any,
    prompt: str,
    pictures: list[Path],
    fields: dict[str, Any],
    dtype: str | None,
    api_key: str | None,
    on_progress: Any,
    on_preview: Any,
) -> Any:
    """The answer of whatever `target` is; an engine is started and stopped for a directory."""
    import httpx

    from ascend_vl.drawing import client

    if target.kind == "transformers":
        from ascend_vl.drawing.reference import draw_request

        return draw_request(Path(target.place), prompt, pictures, fields, on_progress)
    if target.kind == "server":
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        with httpx.Client(base_url=target.place.rstrip("/").removesuffix("/v1"), headers=headers) as server:
            return client.draw(server, prompt, pictures, on_progress, on_preview, **fields)
    from ascend_vl.plan import Wishes
    from ascend_vl.serve import display, process

    wishes = Wishes(drawing="on", dtype=dtype)  # type: ignore[arg-type]
    with (
        display.starting(target.place, output.remarks) as on_stage,
        process.running(target.place, wishes, on_stage=on_stage) as running,
        running.client() as server,
    ):
        return client.draw(server, prompt, pictures, on_progress, on_preview, **fields)


@contextlib.contextmanager
def _drawing() -> Iterator[tuple[Any, Any]]:
    """(on_progress, a maker of on_preview for a file), with a bar on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.remarks, transient=True, disable=not output.remarks.is_terminal) as bar:
        task = bar.add_task(str(Text("drawing", "绘制中")), total=None, visible=False)

        def on_progress(step: int, steps: int) -> None:
            bar.update(task, completed=step, total=steps, visible=True)

        def on_preview_file(path: Path) -> Any:
            return lambda data: _write(path, data)

        yield on_progress, on_preview_file


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise AscendVLError(
            "draw-unwritable",
            Text(f"{path} cannot be written.", f"无法写入 {path}。"),
            Text(f"{error.strerror}.", f"{error.strerror}。"),
            Text("Choose another place.", "请换一个位置。"),
        ) from None


def _format(out: Path) -> str:
    known = FORMATS.get(out.suffix.lower())
    if known is None:
        raise AscendVLError(
            "draw-format",
            Text(f"{out.name} has no known picture ending.", f"{out.name} 的扩展名无法识别。"),
            Text(f"There are {', '.join(FORMATS)}.", f"可用：{'、'.join(FORMATS)}。"),
            Text("Name the file so.", "请使用其中之一。"),
        )
    return known


def _layout(text: str) -> Any:
    if text.lstrip()[:1] in ("[", "{"):
        return text
    try:
        return json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise AscendVLError(
            "drawing-layout",
            Text("The layout cannot be used.", "无法使用该布局。"),
            Text(f"{text} is neither JSON nor a JSON file.", f"{text} 既不是 JSON 也不是 JSON 文件。"),
            Text("Give boxes [[x1, x2, y1, y2], ...].", "请给出框 [[x1, x2, y1, y2], ...]。"),
        ) from None
