"""What the planner knows of a model: from a checkpoint's headers, or from the published numbers of a named model."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ascend_vl.checkpoint.expected import LM_HEAD, expected_shapes, head_shapes
from ascend_vl.checkpoint.shapes import ConfigError, TextShape, VisionShape, text_shape, vision_shape
from ascend_vl.drawing.recipes import Constants, DrawingConfig
from ascend_vl.errors import AscendVLError
from ascend_vl.language import Text
from ascend_vl.rules import table

if TYPE_CHECKING:
    from ascend_vl.checkpoint import Checkpoint

FAMILIES = ("qwen3-vl", "qwen3-vl-moe", "hidream-o1")
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
# The pixel head's, whatever the model's dtype.
HEAD_BYTES = 4
PUBLISHED = Constants()


@dataclass(frozen=True)
class Model:
    """A model to plan for. `argument` is what follows `vllm serve`; `file_bytes` the size of its weight files.

    `quantised` names a quantised layout ("" for none); its weights are then taken as large as the files are.
    """

    name: str
    argument: str
    family: str
    has_head: bool
    text: TextShape
    vision: VisionShape
    file_bytes: int
    stored_dtype: str
    quantised: str = ""
    from_files: bool = False
    drawing: Constants = PUBLISHED

    @property
    def parameters(self) -> int:
        """All parameters, the pixel head included."""
        head = sum(map(prod, head_shapes(self.text.hidden).values())) if self.has_head else 0
        lm_head = 0 if self.text.tied else self.text.vocab * self.text.hidden
        return sum(map(prod, expected_shapes(self.text, self.vision).values())) + lm_head + head

    def weight_bytes(self, dtype: str, tensor_parallel: int, drawing: bool) -> int:
        """Weights of one chip in bytes: what vLLM splits over `tensor_parallel` chips, and what every chip holds whole.

        Split: embedding, attention and MLP matrices, experts, the tower's blocks and mergers, lm_head. Whole: norms,
        router, patch and position embedding, biases of row-parallel layers, the pixel head; k and v once there are more
        chips than kv heads (vLLM's parallel linear layers).
        """
        shapes = expected_shapes(self.text, self.vision)
        if not self.text.tied:
            shapes[LM_HEAD] = (self.text.vocab, self.text.hidden)
        split = whole = 0
        kv_ways = min(tensor_parallel, self.text.kv_heads)
        for name, shape in shapes.items():
            size = prod(shape)
            if not is_split(name):
                whole += size
            elif ".k_proj." in name or ".v_proj." in name:
                split += -(-size // kv_ways)
            else:
                split += -(-size // tensor_parallel)
        per_element = DTYPE_BYTES[dtype]
        if self.quantised:
            total = sum(map(prod, shapes.values()))
            return int(self.file_bytes * (split + whole) / total) if total else self.file_bytes
        head = sum(map(prod, head_shapes(self.text.hidden).values())) if drawing and self.has_head else 0
        return (split + whole) * per_element + head * HEAD_BYTES

    def w8a8_bytes(self, tensor_parallel: int) -> int:
        """About what ModelSlim's W8A8 leaves on one chip: one byte for each matrix of the language model's layers."""
        layers = sum(
            prod(shape)
            for name, shape in expected_shapes(self.text, self.vision).items()
            if name.startswith("model.language_model.layers.") and len(shape) > 1
        )
        return self.weight_bytes("float16", tensor_parallel, False) - layers // tensor_parallel

    def vocabulary_bytes(self, dtype: str, tensor_parallel: int) -> int:
        """Embedding and, unless tied to it, lm_head on one chip, bytes."""
        matrices = 1 if self.text.tied else 2
        return matrices * -(-self.text.vocab * self.text.hidden // tensor_parallel) * DTYPE_BYTES[dtype]

    def kv_token_bytes(self, dtype: str, tensor_parallel: int) -> int:
        """KV cache of one token on one chip: layers x (k and v) x kv heads there x head width x element size."""
        heads = -(-self.text.kv_heads // tensor_parallel)
        return self.text.layers * 2 * heads * self.text.head_dim * DTYPE_BYTES[dtype]


def is_split(name: str) -> bool:
    """Whether vLLM's tensor parallelism divides that tensor."""
    if "norm" in name or ".mlp.gate." in name or "patch_embed" in name or "pos_embed" in name:
        return False
    row_bias = name.endswith(".bias") and (".proj." in name or ".linear_fc2." in name or ".o_proj." in name)
    return not row_bias


def from_checkpoint(checkpoint: "Checkpoint") -> Model:
    """The model in a checkpoint. Raises AscendVLError `model-not-planned` for a family the planner does not know."""
    path = str(checkpoint.path)
    if checkpoint.family not in FAMILIES:
        raise _not_planned(path, f"family {checkpoint.family}")
    text, vision = checkpoint.text, checkpoint.vision
    if text is None or vision is None:
        text, vision = _shapes(path, checkpoint.config)
    quantised = checkpoint.quantisation.summary if checkpoint.quantisation else ""
    return Model(
        name=path.rstrip("/").rsplit("/", 1)[-1],
        argument=path,
        family=checkpoint.family,
        has_head=checkpoint.has_head,
        text=text,
        vision=vision,
        file_bytes=int(checkpoint.bytes),
        stored_dtype=main_dtype(checkpoint.dtypes),
        quantised=quantised,
        from_files=True,
        drawing=_drawing(path, checkpoint.config) if checkpoint.has_head else PUBLISHED,
    )


def known_model(name: str) -> Model | None:
    """The published model of that name or repository, None when the table does not know it."""
    wanted = name.strip().rstrip("/").lower()
    for row in table().models:
        if wanted in (row.id, row.repository.lower(), *row.aliases) or wanted.rsplit("/", 1)[-1] in row.aliases:
            text, vision = _shapes(name, row.config)
            model = Model(
                name=row.repository.rsplit("/", 1)[-1] if "/" not in name else name.rsplit("/", 1)[-1],
                argument=name if "/" in name else row.repository,
                family=row.family,
                has_head=row.family == "hidream-o1",
                text=text,
                vision=vision,
                file_bytes=0,
                stored_dtype=row.stored_dtype,
            )
            size = model.parameters * DTYPE_BYTES[row.stored_dtype]
            return Model(**{**vars(model), "file_bytes": size})
    return None


def unknown_model(name: str) -> AscendVLError:
    """`model-not-found` for a name that is neither a directory nor a published model of the table."""
    known = ", ".join(row.id for row in table().models)
    return AscendVLError(
        "model-not-found",
        Text(f"There is no {name}.", f"找不到 {name}。"),
        Text("It is neither a directory here nor a model that is known.", "它既不是本地目录，也不是已知模型。"),
        Text(
            f"Known: {known}. Or give a model directory; ascend-vl fetch downloads one.",
            f"已知模型：{known}。或给出模型目录；可用 ascend-vl fetch 下载。",
        ),
    )


def main_dtype(dtypes: object) -> str:
    """The dtype of most bytes in a header's tally (`{"BF16": n, ...}`, or a set of names), in torch's spelling."""
    spelled = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    if isinstance(dtypes, Mapping):
        known = {spelled.get(str(key).upper(), str(key)): value for key, value in dtypes.items()}
        known = {key: value for key, value in known.items() if key in DTYPE_BYTES}
        return max(known, key=lambda key: known[key]) if known else "bfloat16"
    names = (
        [spelled.get(str(key).upper(), str(key)) for key in dtypes] if isinstance(dtypes, (set, list, tuple)) else []
    )
    return next((name for name in ("float32", "bfloat16", "float16") if name in names), "bfloat16")


def _shapes(name: str, config: Mapping[str, Any]) -> tuple[TextShape, VisionShape]:
    try:
        return text_shape(config), vision_shape(config)
    except ConfigError as error:
        raise _not_planned(name, f"config.json: {error.key} = {error.found!r}") from None


def _drawing(name: str, config: Mapping[str, Any]) -> Constants:
    try:
        return DrawingConfig.from_checkpoint(config, name).constants
    except (TypeError, ValueError, KeyError) as error:
        raise _not_planned(name, f"config.json: hidream_o1: {error}") from None


def _not_planned(name: str, why: str) -> AscendVLError:
    return AscendVLError(
        "model-not-planned",
        Text(f"No plan can be made for {name}.", f"无法为 {name} 制定方案。"),
        Text(
            f"It is not a Qwen3-VL family model as far as can be read ({why}).",
            f"读到的内容不是 Qwen3-VL 系列模型（{why}）。",
        ),
        Text("ascend-vl inspect shows what it is.", "用 ascend-vl inspect 查看它是什么。"),
    )
