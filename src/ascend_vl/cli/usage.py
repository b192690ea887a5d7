"""A command's `--help` in both languages, and what is said when a command line is not valid."""

import contextlib
import difflib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import typer
from rich.markup import escape

from ascend_vl.cli import help_zh
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text, language

# Texts that typer prints around ours, by their names in its module rich_utils.
PANELS = ("ARGUMENTS_PANEL_TITLE", "OPTIONS_PANEL_TITLE", "REQUIRED_LONG_STRING", "DEFAULT_STRING", "ENVVAR_STRING")


def click_command(module: ModuleType) -> Any:
    """The click command of a module of this folder, its help in the language spoken now."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    settings: dict[str, Any] = getattr(module, "SETTINGS", {})
    single.command(**settings)(module.command)
    command: Any = typer.main.get_command(single)
    for part in (command, *command.params):
        if part.help:
            # Rich would take [x1, x2] for markup.
            part.help = escape(spoken(part.help))
    if language() == "zh":
        _headings(command)
    return command


def spoken(text: str) -> str:
    """A help text in the language spoken now."""
    return help_zh.HELP.get(plain(text), text) if language() == "zh" else text


def plain(text: str) -> str:
    """A help text on one line, as the table has it."""
    return " ".join(text.split())


def _headings(command: Any) -> None:
    """The usage line and the help option of one command in Chinese."""
    usage, help_option = command.get_usage, command.get_help_option

    def in_chinese(context: Any) -> Any:
        option = help_option(context)
        if option is not None and option.help:
            option.help = help_zh.HEADINGS.get(option.help, option.help)
        return option

    word = help_zh.HEADINGS["Usage: "]
    command.get_usage = lambda context: usage(context).replace("Usage: ", word, 1)
    command.get_help_option = in_chinese
    command.options_metavar = help_zh.HEADINGS["[OPTIONS]"]


@contextlib.contextmanager
def panels() -> Iterator[None]:
    """Typer's own headings in the language spoken now, while a command runs."""
    if language() != "zh":
        yield
        return
    from typer import rich_utils

    kept = {name: getattr(rich_utils, name) for name in PANELS if hasattr(rich_utils, name)}
    try:
        for name, text in kept.items():
            setattr(rich_utils, name, help_zh.HEADINGS.get(text, text))
        yield
    finally:
        for name, text in kept.items():
            setattr(rich_utils, name, text)


def no_such_command(name: str, known: list[str]) -> AscendVLError:
    """`usage`: the first word is no command."""
    listed = Text("ascend-vl --help lists them.", "用 ascend-vl --help 查看全部命令。")
    return AscendVLError(
        "usage",
        Text(f"There is no command {name!r}.", f"没有命令 {name!r}。"),
        Text("The first argument must be a command.", "第一个参数必须是命令。"),
        _nearest(name, known, listed),
    )


def no_such_option(name: str, option: str, known: list[str]) -> AscendVLError:
    """`usage`: a command has no such option."""
    shown = Text(f"ascend-vl {name} --help shows what it takes.", f"用 ascend-vl {name} --help 查看用法。")
    return AscendVLError(
        "usage",
        Text(f"There is no option {option}.", f"没有选项 {option}。"),
        Text("The command line is not valid.", "命令行无效。"),
        _nearest(option, known, shown),
    )


def no_such_language(wanted: str) -> AscendVLError:
    """`usage`: --lang names a language there is not."""
    return AscendVLError(
        "usage",
        Text(f"There is no language {wanted!r}.", f"没有语言 {wanted!r}。"),
        Text("Texts are in English and Chinese.", "文本有英文和中文两种。"),
        Text("--lang en or --lang zh.", "请用 --lang en 或 --lang zh。"),
    )


def of_click(name: str, error: Any) -> AscendVLError:
    """`usage`: click's own error about the command line of command `name`."""
    if option := getattr(error, "option_name", None):
        possible = list(getattr(error, "possibilities", None) or [])
        if type(error).__name__ == "NoSuchOption":
            return no_such_option(name, option, possible)
    said = Text(error.format_message(), error.format_message())
    if type(error).__name__ == "MissingParameter" and getattr(error, "param", None) is not None:
        said = Text(said.en, f"缺少 {max(error.param.opts, key=len)}。")
    return AscendVLError(
        "usage",
        said,
        Text("The command line is not valid.", "命令行无效。"),
        Text(f"ascend-vl {name} --help shows what it takes.", f"用 ascend-vl {name} --help 查看用法。"),
    )


def require_model(name: str, model: str, context: Any) -> None:
    """Refuse an option before the model that command `name` does not have: click then takes it for the model.

    Raises AscendVLError `usage`.
    """
    if not model.startswith("-"):
        return
    known = [option for parameter in context.command.params for option in getattr(parameter, "opts", ())]
    error = no_such_option(name, model, [option for option in known if option.startswith("-")])
    after = Text(" Options of vLLM stand after the model.", "vLLM 的选项写在模型之后。")
    raise AscendVLError(error.code, error.what, error.why, Text(error.do.en + after.en, error.do.zh + after.zh))


def _nearest(word: str, known: list[str], otherwise: Text) -> Text:
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not found:
        return otherwise
    return Text(f"Did you mean {found[0]}? {otherwise.en}", f"是否想用 {found[0]}？{otherwise.zh}")
