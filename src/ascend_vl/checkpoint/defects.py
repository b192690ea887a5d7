"""Everything that can be wrong with a checkpoint: stable codes, what each means, how bad it is, what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ascend_vl.language import Text

# error: not servable. warning: servable, and something will surprise. note: worth knowing, changes nothing.
Severity = Literal["error", "warning", "note"]


class Kind(NamedTuple):
    """One line of the catalogue."""

    severity: Severity
    title: Text
    do: Text


@dataclass(frozen=True)
class Defect:
    """One finding in one checkpoint."""

    code: str
    what: Text
    severity: Severity

    @property
    def do(self) -> Text:
        """What helps, from the catalogue."""
        return CATALOGUE[self.code].do


def defect(code: str, en: str, zh: str) -> Defect:
    """A finding of the catalogue's kind `code`."""
    return Defect(code, Text(en, zh), CATALOGUE[code].severity)


def some(names: Sequence[str], most: int = 4) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} (+{len(names) - most})"


_AGAIN = Text(
    "Fetch the file again (ascend-vl fetch resumes and checks sums).",
    "重新下载该文件（ascend-vl fetch 可续传并校验）。",
)
_PUBLISHER = Text("Compare with the published repository; re-export the checkpoint.", "与官方仓库对照，重新导出权重。")
_EDIT = Text(
    "Mend it in a copy of the directory; the original stays as published.", "请在目录副本中修正，保持原件不变。"
)
_NOTHING = Text("Nothing; worth knowing.", "无需处理，知悉即可。")

CATALOGUE: dict[str, Kind] = {
    # The directory
    "config-missing": Kind("error", Text("no config.json", "没有 config.json"), _AGAIN),
    "weights-missing": Kind("error", Text("no safetensors file", "没有 safetensors 文件"), _AGAIN),
    "link-broken": Kind("error", Text("a link that leads nowhere", "失效的符号链接"), _AGAIN),
    "lfs-pointer": Kind(
        "error",
        Text("a Git LFS pointer instead of the file", "只有 Git LFS 指针，没有文件本体"),
        Text(
            "Run `git lfs pull` in the clone, or use ascend-vl fetch.",
            "在克隆目录执行 git lfs pull，或使用 ascend-vl fetch。",
        ),
    ),
    "download-unfinished": Kind("warning", Text("left-overs of a download", "有未完成的下载残留"), _AGAIN),
    "diffusers-pipeline": Kind(
        "error",
        Text("a diffusers pipeline, not a language model", "这是 diffusers 管线，不是语言模型"),
        Text("Serve it with a diffusers-based server.", "请用基于 diffusers 的服务。"),
    ),
    "hidream-i1": Kind(
        "error",
        Text("HiDream-I1, another model than HiDream-O1", "这是 HiDream-I1，不是 HiDream-O1"),
        Text("Fetch HiDream-ai/HiDream-O1-Image instead.", "请下载 HiDream-ai/HiDream-O1-Image。"),
    ),
    "comfy-repackaging": Kind(
        "error",
        Text("the ComfyUI repackaging of HiDream-O1", "这是 HiDream-O1 的 ComfyUI 重打包版本"),
        Text(
            "Fetch the original repository HiDream-ai/HiDream-O1-Image.", "请下载原始仓库 HiDream-ai/HiDream-O1-Image。"
        ),
    ),
    "family-other": Kind(
        "error",
        Text("not of the Qwen3-VL family", "不属于 Qwen3-VL 系列"),
        Text(
            "Use `vllm serve` directly; ascend-vl leaves other models alone.",
            "请直接使用 vllm serve；ascend-vl 不改动其他模型。",
        ),
    ),
    # config.json
    "config-bom": Kind("error", Text("config.json begins with a byte-order mark", "config.json 以 BOM 开头"), _EDIT),
    "config-trailing-comma": Kind("error", Text("a trailing comma in config.json", "config.json 有多余的逗号"), _EDIT),
    "config-broken": Kind("error", Text("config.json cannot be read", "config.json 无法解析"), _AGAIN),
    "config-duplicate-key": Kind("warning", Text("a key twice in config.json", "config.json 中有重复的键"), _EDIT),
    "config-incomplete": Kind(
        "error", Text("a number of config.json is missing or impossible", "config.json 缺少必要数值或数值非法"), _AGAIN
    ),
    "config-inconsistent": Kind(
        "error", Text("numbers of config.json contradict each other", "config.json 的数值相互矛盾"), _PUBLISHER
    ),
    "architecture-unexpected": Kind(
        "warning", Text("architectures does not fit model_type", "architectures 与 model_type 不符"), _EDIT
    ),
    "config-rope-parameters": Kind(
        "warning",
        Text("rope settings in the spelling of Transformers 5 only", "rope 设置只有 Transformers 5 的写法"),
        Text(
            "Use Transformers 5, or add rope_theta and rope_scaling in a copy.",
            "使用 Transformers 5，或在副本中补上 rope_theta 与 rope_scaling。",
        ),
    ),
    "dtype-conflict": Kind("warning", Text("dtype and torch_dtype disagree", "dtype 与 torch_dtype 不一致"), _EDIT),
    "dtype-spelling": Kind(
        "note", Text("the dtype key is not understood by every version", "dtype 键名并非所有版本都识别"), _NOTHING
    ),
    "dtype-differs": Kind(
        "note",
        Text("stored dtype differs from the configured one", "存储类型与配置类型不同"),
        Text("Say --dtype when serving; loading converts.", "启动时指定 --dtype，加载时会转换。"),
    ),
    "dtype-mixed": Kind("note", Text("several dtypes", "多种数据类型混用"), _NOTHING),
    "dtype-unexpected": Kind("error", Text("a dtype no loader takes here", "此处不应出现的数据类型"), _PUBLISHER),
    # lm_head
    "lm-head-missing": Kind(
        "error",
        Text("no lm_head.weight although the embeddings are not tied", "未绑定词嵌入却缺少 lm_head.weight"),
        Text(
            "Re-export with lm_head, or set tie_word_embeddings in a copy if they are tied.",
            "重新导出 lm_head；若确为绑定，请在副本中设置 tie_word_embeddings。",
        ),
    ),
    "lm-head-unused": Kind(
        "warning",
        Text("lm_head.weight is stored but the embeddings are tied", "词嵌入已绑定但仍存有 lm_head.weight"),
        _PUBLISHER,
    ),
    "tie-flag-conflict": Kind(
        "warning", Text("two tie_word_embeddings flags disagree", "两处 tie_word_embeddings 不一致"), _EDIT
    ),
    # Tensors
    "tensor-missing": Kind("error", Text("tensors are missing", "缺少张量"), _AGAIN),
    "tensor-unexpected": Kind(
        "error", Text("tensors that do not belong to this model", "存在不属于该模型的张量"), _PUBLISHER
    ),
    "head-incomplete": Kind("error", Text("part of the pixel head is missing", "像素头不完整"), _AGAIN),
    "shape-mismatch": Kind(
        "error", Text("shapes that config.json does not give", "形状与 config.json 不符"), _PUBLISHER
    ),
    "tensor-duplicated": Kind("error", Text("a tensor is stored twice", "张量重复存储"), _PUBLISHER),
    "key-layout": Kind(
        "error",
        Text("tensor names of another layout", "张量名采用了其他布局"),
        Text("Rename the tensors in a re-exported copy.", "请在重新导出的副本中改名。"),
    ),
    # Shards and index
    "index-broken": Kind("error", Text("the index cannot be read", "索引文件无法解析"), _AGAIN),
    "index-missing": Kind("warning", Text("several shards without an index", "多个分片但没有索引"), _AGAIN),
    "index-several": Kind("warning", Text("more than one index", "存在多个索引文件"), _EDIT),
    "shard-missing": Kind("error", Text("a shard of the index is not there", "索引中的分片不存在"), _AGAIN),
    "shard-unindexed": Kind("warning", Text("a shard the index does not know", "存在索引未列出的分片"), _EDIT),
    "shard-truncated": Kind("error", Text("a shard is cut off", "分片被截断"), _AGAIN),
    "header-broken": Kind("error", Text("a shard's header cannot be read", "分片文件头无法解析"), _AGAIN),
    "offsets-overlap": Kind("error", Text("two tensors share bytes", "张量数据重叠"), _AGAIN),
    "offsets-gap": Kind("error", Text("bytes that belong to no tensor", "存在不属于任何张量的数据"), _AGAIN),
    "tensor-bytes": Kind("error", Text("byte count does not fit dtype and shape", "字节数与类型、形状不符"), _AGAIN),
    "tensor-unindexed": Kind("warning", Text("a tensor the index does not list", "存在索引未列出的张量"), _PUBLISHER),
    "tensor-mislabelled": Kind("error", Text("the index names the wrong shard", "索引指向了错误的分片"), _PUBLISHER),
    "total-size": Kind("warning", Text("the index's total_size is wrong", "索引的 total_size 不正确"), _PUBLISHER),
    # Quantisation
    "quant-unknown": Kind("error", Text("a quantisation nobody here knows", "未知的量化方式"), _PUBLISHER),
    "quant-description": Kind(
        "error", Text("the quantisation description does not fit the tensors", "量化描述文件与张量不符"), _PUBLISHER
    ),
    "quant-fused-names": Kind(
        "warning",
        Text("names that are already fused", "名称已经融合"),
        Text(
            "Load with --load-format sharded_state, or quantise again without fusing.",
            "使用 --load-format sharded_state，或不融合地重新量化。",
        ),
    ),
    # Beside the weights
    "tokenizer-missing": Kind("error", Text("no tokenizer files", "没有分词器文件"), _AGAIN),
    "tokenizer-class": Kind(
        "warning",
        Text("a tokenizer class that Transformers 4 does not know", "Transformers 4 不认识的分词器类"),
        Text(
            "Use Transformers 5, or set tokenizer_class to Qwen2TokenizerFast in a copy.",
            "使用 Transformers 5，或在副本中将 tokenizer_class 改为 Qwen2TokenizerFast。",
        ),
    ),
    "processor-missing": Kind("error", Text("no image processor settings", "没有图像处理器设置"), _AGAIN),
    "processor-new": Kind(
        "warning",
        Text(
            "image processor settings only in the place of Transformers 5", "图像处理器设置只有 Transformers 5 的位置"
        ),
        _EDIT,
    ),
    "processor-differs": Kind(
        "error", Text("the image processor does not fit the vision tower", "图像处理器与视觉塔不符"), _PUBLISHER
    ),
    "chat-template-missing": Kind(
        "warning",
        Text("no chat template", "没有聊天模板"),
        Text("Give --chat-template when serving.", "启动时用 --chat-template 指定。"),
    ),
    "head-tokens-missing": Kind(
        "warning", Text("the tokenizer lacks the drawing tokens", "分词器缺少绘图所需的特殊词元"), _AGAIN
    ),
    "sampling-defaults": Kind(
        "note",
        Text("generation_config.json changes how answers are sampled", "generation_config.json 会改变采样方式"),
        Text(
            "Send every sampling field, or serve with --generation-config vllm.",
            "请求中写明全部采样参数，或以 --generation-config vllm 启动。",
        ),
    ),
    "side-file-broken": Kind(
        "warning", Text("a JSON file beside the weights cannot be read", "权重旁的 JSON 文件无法解析"), _AGAIN
    ),
}
