"""The files beside the weights: tokenizer, processor, chat template, generation defaults."""

from collections.abc import Mapping
from typing import Any

from ascend_vl.checkpoint.config_file import Config, read_json
from ascend_vl.checkpoint.defects import Defect, defect, some
from ascend_vl.checkpoint.files import Files

# What HiDream-O1's launcher attaches to its tokenizer; only the first and last are used while drawing.
HEAD_TOKENS = ("<|boi_token|>", "<|bor_token|>", "<|eor_token|>", "<|bot_token|>", "<|tms_token|>")
# Sampling fields that make greedy-looking requests random, and the values under which they do nothing.
_NEUTRAL = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "min_p": 0.0,
}
_PARTIAL = (".partial", ".incomplete", ".part", ".aria2", ".crdownload", ".tmp")


def companion_defects(files: Files, config: Config, has_head: bool) -> list[Defect]:
    """What is missing or will surprise. Reads only the small JSON files; never raises for what is in them."""
    found: list[Defect] = []
    side = {
        name: _side(files, name, found)
        for name in ("tokenizer_config.json", "generation_config.json", "processor_config.json")
    }
    found += _tokenizer(files, side["tokenizer_config.json"])
    found += _processor(files, side["processor_config.json"], config, found)
    templates = {"chat_template.jinja", "chat_template.json"} & set(files.sizes)
    if not templates and "chat_template" not in side["tokenizer_config.json"]:
        found.append(
            defect(
                "chat-template-missing",
                "No chat_template file and none in tokenizer_config.json.",
                "没有 chat_template 文件，tokenizer_config.json 中也没有。",
            )
        )
    if has_head:
        found += _head_tokens(files, side["tokenizer_config.json"], found)
    found += _sampling(side["generation_config.json"])
    partial = [name for name in files.sizes if name.endswith(_PARTIAL)]
    if partial:
        found.append(defect("download-unfinished", f"{some(partial)}.", f"{some(partial)}。"))
    return found


def _side(files: Files, name: str, found: list[Defect]) -> Mapping[str, Any]:
    """The parsed file, {} when absent or unreadable (which is then in `found`)."""
    if name not in files.sizes:
        return {}
    parsed, problems = read_json(files, name, "side-file-broken")
    found += problems
    if isinstance(parsed.value, dict):
        return parsed.value
    if not problems:
        found.append(defect("side-file-broken", f"{name} is not a JSON object.", f"{name} 不是 JSON 对象。"))
    return {}


def _tokenizer(files: Files, settings: Mapping[str, Any]) -> list[Defect]:
    found = []
    if "tokenizer.json" not in files.sizes and not {"vocab.json", "merges.txt"} <= set(files.sizes):
        found.append(
            defect(
                "tokenizer-missing",
                "Neither tokenizer.json nor vocab.json with merges.txt.",
                "没有 tokenizer.json，也没有 vocab.json 与 merges.txt。",
            )
        )
    name = settings.get("tokenizer_class")
    if name in ("TokenizersBackend", "PythonBackend", "SentencePieceBackend"):
        found.append(
            defect(
                "tokenizer-class",
                f"tokenizer_class is {name}; Transformers 4 says 'Tokenizer class {name} does not exist'.",
                f"tokenizer_class 为 {name}；Transformers 4 报 'Tokenizer class {name} does not exist'。",
            )
        )
    return found


def _processor(files: Files, nested: Mapping[str, Any], config: Config, found: list[Defect]) -> list[Defect]:
    settings: Any
    if "preprocessor_config.json" in files.sizes:
        settings = _side(files, "preprocessor_config.json", found)
        problems = []
    elif isinstance(nested.get("image_processor"), dict):
        settings = nested["image_processor"]
        problems = [
            defect(
                "processor-new",
                "Only processor_config.json; Transformers 4 reads preprocessor_config.json.",
                "只有 processor_config.json；Transformers 4 读取 preprocessor_config.json。",
            )
        ]
    else:
        return [defect("processor-missing", "No preprocessor_config.json.", "没有 preprocessor_config.json。")]
    if config.vision is None:
        return problems
    pairs = {
        "patch_size": config.vision.patch,
        "merge_size": config.vision.merge,
        "temporal_patch_size": config.vision.temporal_patch,
    }
    for key, wanted in pairs.items():
        if type(settings.get(key)) is int and settings[key] != wanted:
            problems.append(
                defect(
                    "processor-differs",
                    f"{key} {settings[key]}, config.json says {wanted}.",
                    f"{key} 为 {settings[key]}，config.json 为 {wanted}。",
                )
            )
    return problems


def _head_tokens(files: Files, settings: Mapping[str, Any], found: list[Defect]) -> list[Defect]:
    """Asked of the small files first; the tokenizer itself (some 10 MB) only when they do not say."""
    known = _added(settings.get("added_tokens_decoder"))
    if "added_tokens.json" in files.sizes:
        known |= set(_side(files, "added_tokens.json", found))
    if not known and "tokenizer.json" in files.sizes:
        known = _added(_side(files, "tokenizer.json", found).get("added_tokens"))
    missing = [token for token in HEAD_TOKENS if token not in known]
    if not missing:
        return []
    return [
        defect(
            "head-tokens-missing", f"The tokenizer lacks {', '.join(missing)}.", f"分词器缺少 {'、'.join(missing)}。"
        )
    ]


def _added(entries: Any) -> set[str]:
    """Contents of `added_tokens` (a list) or `added_tokens_decoder` (a dict by id)."""
    values = entries.values() if isinstance(entries, dict) else entries if isinstance(entries, list) else []
    return {str(item.get("content")) for item in values if isinstance(item, dict)}


def _sampling(settings: Mapping[str, Any]) -> list[Defect]:
    changed = {
        key: settings[key]
        for key, neutral in _NEUTRAL.items()
        if isinstance(settings.get(key), (int, float))
        and settings[key] != neutral
        and not (key == "top_k" and settings[key] == -1)
    }
    if not changed or (
        settings.get("do_sample") is False and set(changed) <= {"temperature", "top_k", "top_p", "min_p"}
    ):
        return []
    shown = ", ".join(f"{key} {value}" for key, value in changed.items())
    return [defect("sampling-defaults", f"A request that leaves them out gets {shown}.", f"请求未写明时采用 {shown}。")]
