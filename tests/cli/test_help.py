"""`--help` in both languages, and what is said to a mistyped command line."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from ascend_vl.cli import help_zh, usage
from ascend_vl.cli.app import COMMANDS, main, wanted_language
from ascend_vl.language import speak

CHINESE = re.compile("[\u4e00-\u9fff]")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ascend-vl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    yield run
    speak(None)


def texts(name: str) -> list[str]:
    """The help texts of one command as they are written in its module."""
    module = importlib.import_module(f"ascend_vl.cli.{name}")
    single = typer.Typer(add_completion=False)
    single.command(**getattr(module, "SETTINGS", {}))(module.command)
    command: Any = typer.main.get_command(single)
    assert all(parameter.help for parameter in command.params), [p.name for p in command.params if not p.help]
    return [usage.plain(part.help) for part in (command, *command.params)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_has_a_chinese_one(name: str) -> None:
    assert [text for text in texts(name) if text not in help_zh.HELP and text not in help_zh.ALIKE] == []


def test_the_table_holds_no_text_that_nothing_uses() -> None:
    used = {text for name in COMMANDS for text in texts(name)}
    assert used >= set(help_zh.HELP) | help_zh.ALIKE
    assert not set(help_zh.HELP) & help_zh.ALIKE
    assert [text for text in help_zh.HELP.values() if not CHINESE.search(text) and "、" not in text] == []


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("before", [True, False])
def test_help_is_chinese_when_asked_for(call: Call, name: str, before: bool) -> None:
    code, out, _ = call(*(["--lang", "zh", name, "--help"] if before else [name, "--help", "--lang=zh"]))
    assert code == 0
    assert "用法：ascend-vl" in out and "选项" in out and "显示本说明并退出。" in out
    assert not re.search(r"Usage|Options|Arguments|\[default:|\[required\]", out)
    speak("en")
    _, again, _ = call(name, "--help")
    assert "Usage: ascend-vl" in again and not CHINESE.search(again)


def test_brackets_in_a_help_text_are_shown(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "[[x1, x2, y1, y2], ...]" in call("draw", "--help", "--lang", "en")[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--lang", "fr", "--help"], "no language 'fr'"),
        (["doctor", "--lang", "fr"], "no language 'fr'"),
        (["--lang"], "no language ''"),
        (["serv", "x"], "Did you mean serve?"),
        (["plan", "--ndoes", "2", "x"], "Did you mean --nodes?"),
        (["serve", "--nope", "x"], "no option --nope"),
        (["doctor", "--prob"], "Did you mean --probe?"),
        (["ask", "x"], "question"),
        (["emulate"], "emulate --chip 310P3 -- python"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.setenv("ASCEND_VL_LANG", "en")
    code, _, err = call(*arguments)
    assert code == 2
    assert "[usage]" in err and told in err and "Traceback" not in err


def test_the_language_of_a_command_that_is_run_is_its_own() -> None:
    assert wanted_language(["emulate", "--", "x", "--lang", "fr"]) is None
    assert wanted_language(["plan", "m", "--lang=zh"]) == "zh"
