"""The architecture names under which vLLM finds our model classes. Light: no torch, no vLLM.

They are never a stock name, so that installing this package changes nothing for anybody's checkpoint; `serve` selects
one with `--hf-overrides '{"architectures": [NAME]}'`. They end as upstream's do: vLLM infers the task from the ending.
"""

# What a checkpoint's config.json says -> what we serve it as.
QWEN3_VL = "AscendVLQwen3VLForConditionalGeneration"
QWEN3_VL_MOE = "AscendVLQwen3VLMoeForConditionalGeneration"
HIDREAM_O1 = "AscendVLHiDreamO1ForConditionalGeneration"

# Registered lazily, "module:class". The class names are upstream's own: others match on them.
CLASSES: dict[str, str] = {
    QWEN3_VL: "ascend_vl.models.ascend_qwen3_vl:Qwen3VLForConditionalGeneration",
    QWEN3_VL_MOE: "ascend_vl.models.ascend_qwen3_vl_moe:Qwen3VLMoeForConditionalGeneration",
    HIDREAM_O1: "ascend_vl.models.ascend_hidream_o1:Qwen3VLForConditionalGeneration",
}

# A key of the model config, set by --hf-overrides: true loads HiDream-O1's pixel head, false or absent skips it unread.
DRAWING_KEY = "ascend_vl_drawing"

WORKER_EXTENSION = "ascend_vl.models.worker.WorkerExtension"
MEDIA_CONNECTOR = "ascend_vl"
