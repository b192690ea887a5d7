"""The list of commands. A command's module is imported only when that command runs."""

import importlib
import importlib.util
import sys
from typing import Any

import typer

from ascend_vl import __version__
from ascend_vl.cli import output
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
        raise AscendVLError(
            "usage",
            Text(f"There is no command {name!r}.", f"没有命令 {name!r}。"),
            Text("The first argument must be a command.", "第一个参数必须是命令。"),
            Text("ascend-vl --help lists them.", "用 ascend-vl --help 查看全部命令。"),
        )
    module = importlib.import_module(f"ascend_vl.cli.{name}")
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    settings: dict[str, Any] = getattr(module, "SETTINGS", {})
    single.command(**settings)(module.command)
    try:
        return int(single(args=args, prog_name=f"ascend-vl {name}", standalone_mode=False) or 0)
    except Exception as error:
        # A usage error of click, or of the copy of click that newer typer carries.
        if not hasattr(error, "format_message"):
            raise
        raise AscendVLError(
            "usage",
            Text(error.format_message(), error.format_message()),
            Text("The command line is not valid.", "命令行无效。"),
            Text(f"ascend-vl {name} --help shows what it takes.", f"用 ascend-vl {name} --help 查看用法。"),
        ) from None


def main() -> None:
    """Entry point of the console script: exit codes as in the command contract, 130 when interrupted."""
    args = sys.argv[1:]
    if len(args) >= 2 and args[0] == "--lang" and args[1] in ("en", "zh"):
        speak("zh" if args[1] == "zh" else "en")
        args = args[2:]
    elif args and args[0] in ("--lang=en", "--lang=zh"):
        speak("zh" if args[0].endswith("zh") else "en")
        args = args[1:]
    try:
        if args and args[0] in ("-h", "--help"):
            show_help()
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
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
