"""What every command does alike: languages, JSON on stdout, errors in three lines, exit codes."""

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Language, Text, speak

Json = Annotated[bool, typer.Option("--json", help="stable, versioned JSON and nothing else on stdout")]
Lang = Annotated[str | None, typer.Option("--lang", help="en | zh")]

console = Console(highlight=False)
# Progress and remarks go here, so that stdout holds the result alone.
remarks = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def show_error(error: AscendVLError, as_json: bool) -> None:
    """The error object on stdout with --json; otherwise what, why and what to do on stderr, a line each."""
    if as_json:
        print_json(error.to_json())
        return
    remarks.print(f"[red]{Text('error', '错误')}[/red] \\[{error.code}] {_plain(error.what)}", soft_wrap=True)
    remarks.print(f"  {Text('why', '原因')}: {_plain(error.why)}", soft_wrap=True)
    remarks.print(f"  {Text('do', '处理')}: {_plain(error.do)}", soft_wrap=True)


def _plain(text: object) -> str:
    return str(text).replace("[", "\\[")


def run(body: Callable[[], int | None], *, as_json: bool = False, lang: str | None = None) -> None:
    """Run a command's body and end the process with its exit code (None is 0).

    AscendVLError becomes its three lines (or JSON) and its exit code; an interrupt becomes 130.
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
    raise typer.Exit(code)
