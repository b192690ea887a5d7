"""What every command does alike: languages, JSON on stdout, errors in three lines, exit codes."""

import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Language, Text, speak

# How findings, defects and troubles are shown.
COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}
SEVERITIES = {"error": Text("error", "错误"), "warning": Text("warning", "警告"), "note": Text("note", "提示")}

Json = Annotated[bool, typer.Option("--json", help="stable, versioned JSON and nothing else on stdout")]
Lang = Annotated[str | None, typer.Option("--lang", help="en | zh")]

console = Console(highlight=False)
# Progress and remarks go here, so that stdout holds the result alone.
remarks = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on stdout, at once: a command may go on. Raises ValueError for NaN, which JSON has not."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def show_error(error: AscendVLError, as_json: bool) -> None:
    """The error object on stdout with --json; otherwise what, why and what to do on stderr, a line each."""
    if as_json:
        print_json(error.to_json())
        return
    remarks.print(f"[red]{Text('error', '错误')}[/red] \\[{error.code}] {_plain(error.what)}", soft_wrap=True)
    remarks.print(f"  {Text('why', '原因')}: {_plain(error.why)}", soft_wrap=True)
    remarks.print(f"  {Text('do', '处理')}: {_plain(error.do)}", soft_wrap=True)


def _plain(text: object) -> str:
    return escape(" ".join(str(text).split("\n")))


def run(body: Callable[[], int | None], *, as_json: bool = False, lang: str | None = None) -> None:
    """Run a command's body and end the process with its exit code (None is 0).

    AscendVLError becomes its three lines (or JSON) and its exit code; an interrupt becomes 130. So does a file that the
    system refuses, and anything unforeseen (`ASCEND_VL_TRACE=1` shows where).
    """
    if lang not in (None, "en", "zh"):
        raise typer.BadParameter("--lang: en | zh")
    if lang is not None:
        chosen: Language = "zh" if lang == "zh" else "en"
        speak(chosen)
    try:
        code = body() or 0
    except AscendVLError as error:
        show_error(error, as_json)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        # Usage errors of typer are told by the caller.
        if os.environ.get("ASCEND_VL_TRACE") or hasattr(error, "format_message"):
            raise
        told = unforeseen(error)
        show_error(told, as_json)
        code = told.exit_code
    raise typer.Exit(code)


def unforeseen(error: Exception) -> AscendVLError:
    """An error that no command foresaw: of a file as `file-unusable`, any other as `internal-error`."""
    if isinstance(error, OSError) and error.filename is not None:
        return AscendVLError(
            "file-unusable",
            Text(f"{error.filename} cannot be used.", f"无法使用 {error.filename}。"),
            Text(f"{error.strerror}.", f"{error.strerror}。"),
            Text("Check the path, its permissions and the free space.", "请检查路径、权限与剩余空间。"),
        )
    said = f"{type(error).__name__}: {error}"[:400]
    return AscendVLError(
        "internal-error",
        Text("ascend-vl failed in a way it did not foresee.", "ascend-vl 遇到了未预料的错误。"),
        Text(said, said),
        Text(
            "Report it with the output of the same command under ASCEND_VL_TRACE=1.",
            "请设置 ASCEND_VL_TRACE=1 重新运行，并附上输出反馈此问题。",
        ),
    )
