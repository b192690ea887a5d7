"""config.json: read as meant, its defects, and the shapes it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ascend_vl.checkpoint import json_file
from ascend_vl.checkpoint.defects import Defect, defect, some
from ascend_vl.checkpoint.files import Files
from ascend_vl.checkpoint.shapes import ConfigError, TextShape, VisionShape, text_shape, vision_shape

MODEL_TYPES = {"qwen3_vl": "Qwen3VLForConditionalGeneration", "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration"}


@dataclass(frozen=True)
class Config:
    """`value` is {} when nothing could be read; the shapes are None when the config does not give them."""

    value: Mapping[str, Any] = field(default_factory=dict)
    text: TextShape | None = None
    vision: VisionShape | None = None
    defects: tuple[Defect, ...] = ()

    @property
    def model_type(self) -> str:
        """`model_type`, or by the architecture where it is absent; "" if neither says."""
        stated = self.value.get("model_type")
        if isinstance(stated, str) and stated:
            return stated
        return next((kind for kind, name in MODEL_TYPES.items() if name in self.architectures), "")

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names the file lists."""
        stated = self.value.get("architectures")
        return tuple(item for item in stated if isinstance(item, str)) if isinstance(stated, list) else ()


def read_config(files: Files) -> Config:
    """Read config.json; never raises for what is in it."""
    if "config.json" not in files.sizes:
        return Config(defects=(defect("config-missing", "There is no config.json.", "没有 config.json。"),))
    parsed, found = read_json(files, "config.json", "config-broken")
    if not isinstance(parsed.value, dict):
        if not found:
            found = [defect("config-broken", "config.json is not a JSON object.", "config.json 不是 JSON 对象。")]
        return Config(defects=tuple(found))
    bare = Config(parsed.value)
    if not bare.model_type:
        found.append(_incomplete(ConfigError("model_type", None)))
    if bare.model_type not in MODEL_TYPES:
        return Config(parsed.value, defects=tuple(found))
    text = vision = None
    try:
        text = text_shape(parsed.value)
    except ConfigError as error:
        found.append(_incomplete(error))
    try:
        vision = vision_shape(parsed.value)
    except ConfigError as error:
        found.append(_incomplete(error))
    found += _contradictions(text, vision) + _spellings(bare)
    return Config(parsed.value, text, vision, tuple(found))


def read_json(files: Files, name: str, code: str) -> tuple[json_file.JsonFile, list[Defect]]:
    """A JSON file and what is wrong with it as a file; `code` names an unreadable one."""
    size = files.sizes[name]
    try:
        parsed = json_file.parse(files.read(name, 0, size)) if size <= json_file.LARGEST else None
    except OSError as error:
        return json_file.JsonFile(), [
            defect(code, f"{name} cannot be read ({error.strerror or error}).", f"无法读取 {name}。")
        ]
    if parsed is None:
        return json_file.JsonFile(), [
            defect(code, f"{name}: {size} bytes is no JSON file.", f"{name}：{size} 字节，不像 JSON。")
        ]
    found = []
    strict = code == "config-broken"
    if parsed.has_bom and strict:
        found.append(defect("config-bom", f"{name} begins with a byte-order mark.", f"{name} 以 BOM 开头。"))
    if parsed.error:
        found.append(defect(code, f"{name}: {parsed.error[0]}.", f"{name}：{parsed.error[1]}。"))
    if parsed.trailing_comma and strict:
        found.append(
            defect("config-trailing-comma", f"{name} has a comma before a bracket.", f"{name} 的括号前有多余逗号。")
        )
    if (parsed.has_bom or parsed.trailing_comma) and not strict and not parsed.error:
        found.append(defect(code, f"{name} is not strict JSON.", f"{name} 不是严格的 JSON。"))
    if parsed.duplicate_keys:
        names = some(parsed.duplicate_keys)
        found.append(
            defect("config-duplicate-key", f"{name}: {names}; the last counts.", f"{name}：{names}，以最后一个为准。")
        )
    return parsed, found


def _incomplete(error: ConfigError) -> Defect:
    shown = "absent" if error.found is None else repr(error.found)[:60]
    zh = "缺失" if error.found is None else repr(error.found)[:60]
    return defect("config-incomplete", f"config.json: {error.key} is {shown}.", f"config.json：{error.key} 为 {zh}。")


def _contradictions(text: TextShape | None, vision: VisionShape | None) -> list[Defect]:
    found: list[tuple[str, str]] = []
    if text is not None:
        if text.heads % text.kv_heads:
            found.append(
                (f"{text.heads} heads for {text.kv_heads} kv heads", f"{text.heads} 个头对应 {text.kv_heads} 个 KV 头")
            )
        section = text.rope.get("mrope_section")
        if (
            isinstance(section, list)
            and all(type(item) is int for item in section)
            and 2 * sum(section) != text.head_dim
        ):
            found.append(
                (
                    f"mrope_section {section} for head_dim {text.head_dim}",
                    f"mrope_section {section} 与 head_dim {text.head_dim} 不符",
                )
            )
    if vision is not None:
        if vision.hidden % vision.heads:
            found.append(
                (
                    f"vision width {vision.hidden} for {vision.heads} heads",
                    f"视觉宽度 {vision.hidden} 不能被 {vision.heads} 个头整除",
                )
            )
        outside = [index for index in vision.deepstack if index >= vision.depth]
        if outside:
            found.append(
                (
                    f"deepstack index {outside} of {vision.depth} blocks",
                    f"deepstack 序号 {outside} 超出 {vision.depth} 层",
                )
            )
        if round(vision.position_embeddings**0.5) ** 2 != vision.position_embeddings:
            found.append(
                (
                    f"{vision.position_embeddings} position embeddings are no square",
                    f"{vision.position_embeddings} 个位置嵌入不是平方数",
                )
            )
    if text is not None and vision is not None and vision.out_hidden != text.hidden:
        found.append(
            (
                f"vision out_hidden_size {vision.out_hidden}, text width {text.hidden}",
                f"视觉输出宽度 {vision.out_hidden}，文本宽度 {text.hidden}",
            )
        )
    return [defect("config-inconsistent", f"config.json: {en}.", f"config.json：{zh}。") for en, zh in found]


def _spellings(config: Config) -> list[Defect]:
    """Keys that one of Transformers 4 and 5 does not read, or that disagree."""
    found = []
    wanted = MODEL_TYPES[config.model_type]
    if config.architectures and wanted not in config.architectures:
        names = some(config.architectures)
        found.append(
            defect(
                "architecture-unexpected",
                f"model_type {config.model_type} with {names}.",
                f"model_type 为 {config.model_type}，却写着 {names}。",
            )
        )
    found += _dtype_spellings(config.value)
    text = config.value.get("text_config")
    text = text if isinstance(text, dict) else {}
    if isinstance(text.get("rope_parameters"), dict) and not isinstance(text.get("rope_scaling"), dict):
        found.append(
            defect(
                "config-rope-parameters",
                "text_config has rope_parameters and no rope_scaling: Transformers 4 takes its own defaults.",
                "text_config 只有 rope_parameters 而没有 rope_scaling：Transformers 4 会忽略它并采用自己的默认值。",
            )
        )
    flags = (config.value.get("tie_word_embeddings"), text.get("tie_word_embeddings"))
    if all(isinstance(flag, bool) for flag in flags) and flags[0] != flags[1]:
        found.append(
            defect(
                "tie-flag-conflict",
                f"Top level {flags[0]}, text_config {flags[1]}.",
                f"顶层为 {flags[0]}，text_config 为 {flags[1]}。",
            )
        )
    return found


def _dtype_spellings(config: Mapping[str, Any]) -> list[Defect]:
    text = config.get("text_config")
    sections = [config, text if isinstance(text, dict) else {}]
    for section in sections:
        new, old = section.get("dtype"), section.get("torch_dtype")
        if isinstance(new, str) and isinstance(old, str) and new.removeprefix("torch.") != old.removeprefix("torch."):
            return [
                defect("dtype-conflict", f"dtype {new}, torch_dtype {old}.", f"dtype 为 {new}，torch_dtype 为 {old}。")
            ]
    keys = {key for section in sections for key in ("dtype", "torch_dtype") if isinstance(section.get(key), str)}
    if keys == {"dtype"}:
        return [
            defect(
                "dtype-spelling",
                "Only dtype: Transformers before 4.56 reads torch_dtype.",
                "只有 dtype：4.56 之前的 Transformers 读取 torch_dtype。",
            )
        ]
    if keys == {"torch_dtype"}:
        return [
            defect(
                "dtype-spelling",
                "Only torch_dtype: the spelling before Transformers 4.56.",
                "只有 torch_dtype：这是 Transformers 4.56 之前的写法。",
            )
        ]
    return []


def configured_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype that the config names ("bfloat16"), or None."""
    text = config.get("text_config")
    for section in (config, text if isinstance(text, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            if isinstance(section.get(key), str):
                return str(section[key]).removeprefix("torch.")
    return None
