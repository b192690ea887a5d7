"""What a serve command says of the server it starts: address, model name, key."""

from collections.abc import Mapping, Sequence

from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text

DEFAULT_PORT = 8000


def option(command: Sequence[str], *spellings: str) -> str | None:
    """The last value given to an option, as `--name value` or `--name=value`; underscores count as dashes."""
    found = None
    for index, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in spellings:
            if equals:
                found = value
            elif index + 1 < len(command):
                found = command[index + 1]
    return found


def address(command: Sequence[str]) -> tuple[str, int]:
    """Host ("" for all) and port the command listens on. Raises AscendVLError `port-invalid`."""
    port = option(command, "--port") or str(DEFAULT_PORT)
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise AscendVLError(
            "port-invalid",
            Text(f"--port {port} cannot be used.", f"--port {port} 无效。"),
            Text("A port is a number from 1 to 65535.", "端口是 1 到 65535 之间的数字。"),
            Text("Give another --port.", "请用 --port 指定其他端口。"),
        )
    return option(command, "--host") or "", int(port)


def served_name(command: Sequence[str]) -> str:
    """The model name that requests use."""
    return option(command, "--served-model-name") or command[2]


def api_key(command: Sequence[str], secrets: Mapping[str, str]) -> str | None:
    """The key this server wants, None for none."""
    return option(command, "--api-key") or secrets.get("VLLM_API_KEY")
