"""The list of commands. A command's module is imported only when that command runs."""

import importlib
import importlib.util
import os
import signal
import sys

import typer

from ascend_vl import __version__
from ascend_vl.cli import output, usage
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text, speak

# Name of the command = name of its module in this folder; the module's `command` is a typer-annotated function.
COMMANDS: dict[str, Text] = {
    "doctor": Text("what is here, what works, what to do next", "检查本机：有什么、能用什么、下一步"),
    "inspect": Text("what a checkpoint is, from its headers alone", "只读文件头，说明一个权重目录是什么"),
    "fetch": Text("download a model, resuming, with checksums", "下载模型（断点续传、校验）"),
    "plan": Text("the resolved plan for this machine and model", "给出本机与该模型的完整部署方案"),
    "lint": Text("findings in somebody's serve or docker command", "检查 vllm serve / docker run 命令"),
    "serve": Text("run the plan", "按方案启动服务"),
    "ask": Text("one answer from a server or a model", "向服务或模型提一个问题"),
    "draw": Text("one picture from a server or a model", "画一张图"),
    "capture": Text("record answers and what led to them", "记录回答及其各阶段"),
    "compare": Text("judge two recorded runs", "比较两次记录"),
    "verify": Text("the staged verification, ending in a report", "分阶段验证并生成报告"),
    "bisect": Text("from a wrong answer to the operator", "从错误回答定位到算子"),
    "report": Text("the accuracy report, one file", "生成精度报告（单文件）"),
    "emulate": Text("run a command on an emulated NPU", "在模拟 NPU 上运行命令"),
    "field": Text("on a real chip: answer the open questions", "在真实芯片上回答未决问题"),
    "support": Text("logs, plan and versions, redacted, in one archive", "打包日志、方案与版本（已脱敏）"),
    "pack": Text("a wheelhouse for sites without a network", "为无网络环境打包"),
    "demo": Text("serve the bundled model, look, draw, verify", "演示：启动、看图、画图、验证"),
}


def available() -> list[str]:
    """Names of the commands that this installation has."""
    return [name for name in COMMANDS if importlib.util.find_spec(f"ascend_vl.cli.{name}")]


def show_help() -> None:
    """The commands, one line each."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{COMMANDS[name]}" for name in available()]
    print(
        f"ascend-vl {__version__}: {Text('Qwen3-VL-family models on Ascend NPUs', '昇腾 NPU 上的 Qwen3-VL 系列模型')}\n"
    )
    print(f"{Text('usage', '用法')}: ascend-vl [--lang en|zh] COMMAND [--help]\n")
    print("\n".join(lines))


def run_command(name: str, args: list[str]) -> int:
    """Import the command's module, parse `args`, run it; its exit code.

    Raises AscendVLError for a command that does not exist.
    """
    if name not in available():
        raise usage.no_such_command(name, available())
    module = importlib.import_module(f"ascend_vl.cli.{name}")
    command = usage.click_command(module)
    try:
        with usage.panels():
            return int(command.main(args=args, prog_name=f"ascend-vl {name}", standalone_mode=False) or 0)
    except Exception as error:
        # A usage error of click, or of the copy of click that newer typer carries.
        if not hasattr(error, "format_message"):
            raise
        raise usage.of_click(name, error) from None


def wanted_language(args: list[str]) -> str | None:
    """What `--lang` says, wherever it stands before a `--`; None without one."""
    ours = args[: args.index("--")] if "--" in args else args
    for number, word in enumerate(ours):
        if word.startswith("--lang="):
            return word.partition("=")[2]
        if word == "--lang":
            return ours[number + 1] if number + 1 < len(ours) else ""
    return None


def main() -> None:
    """Entry point of the console script: exit codes as in the command contract, 130 when interrupted."""
    try:
        _main()
    except (KeyboardInterrupt, typer.Abort):
        # Another Ctrl-C on the way out would make it a death by signal.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(130)


def _main() -> None:
    args = sys.argv[1:]
    try:
        language = wanted_language(args)
        if language not in (None, "en", "zh"):
            raise usage.no_such_language(str(language))
        if language is not None:
            speak("zh" if language == "zh" else "en")
        if args and args[0].partition("=")[0] == "--lang":
            args = args[1 if "=" in args[0] else 2 :]
        if args and args[0] in ("-h", "--help"):
            show_help()
            sys.stdout.flush()
            sys.exit(0)
        if args and args[0] == "--version":
            print(__version__)
            sys.exit(0)
        if not args or args[0] in ("--json",):
            from ascend_vl.cli import status

            sys.exit(status.command(as_json=bool(args)))
        sys.exit(run_command(args[0], args[1:]))
    except AscendVLError as error:
        output.show_error(error, as_json="--json" in args)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone. Python flushes once more at exit: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
