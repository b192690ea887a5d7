"""Which hub a name is read from, and opening a repository there."""

import os

from ascend_vl.checkpoint.hub import HubName, Repository, translate
from ascend_vl.checkpoint.hub_huggingface import open_huggingface
from ascend_vl.checkpoint.hub_modelscope import open_modelscope
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text


def is_repository_id(text: str) -> bool:
    """Whether `text` can be `owner/name` (and is not a path of any other form)."""
    owner, slash, name = text.partition("/")
    plain = all(part and part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in (owner, name))
    return bool(slash) and plain and not text.startswith((".", "~"))


def chosen_hub(source: str | None) -> HubName:
    """The hub that `--from` names, else ModelScope if VLLM_USE_MODELSCOPE says so, else Hugging Face."""
    if source in ("huggingface", "modelscope"):
        return "huggingface" if source == "huggingface" else "modelscope"
    if source is not None:
        raise AscendVLError(
            "usage",
            Text(f"--from {source} is not known.", f"不认识 --from {source}。"),
            Text("Repositories are read from two hubs.", "支持两个模型站。"),
            Text("--from modelscope or --from huggingface.", "请用 --from modelscope 或 --from huggingface。"),
        )
    wanted = os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true")
    return "modelscope" if wanted else "huggingface"


def is_offline() -> bool:
    """Whether the environment forbids the network (the hub clients' own variables)."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def open_repository(name: str, source: str | None = None, revision: str | None = None) -> Repository:
    """List a repository. Raises AscendVLError (`repository-not-found`, `-refused`, `-busy`, `-unreachable`)."""
    hub = chosen_hub(source)
    try:
        if hub == "huggingface":
            return open_huggingface(name, revision)
        return open_modelscope(name, revision)
    except AscendVLError:
        raise
    except Exception as error:
        raise translate(error, hub, name) from None
