"""From error texts to causes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_vl.rules.conditions import Subject
from ascend_vl.rules.symptoms import recognise, suspects

DUO = Subject("310P", "300i-duo", "0.23.0")

# What a user pastes -> the cause that must come first on a 300I Duo with the release that has it.
PASTED = [
    ("RuntimeError: ACL stream synchronize failed, error code:507018", "0.23.0", "merge-index-put"),
    ("Aicpu kernel execute failed, kernelName=IndexPut", "0.22.1rc1", "merge-index-put"),
    ("SetDevice ... error code 507033", "0.11.0rc0", "files-copied-over-build"),
    ("EL0004: Failed to allocate memory", "0.11.0rc0", "kv-too-large-310p"),
    ("The size of tensor a (10560) must match the size of tensor b (3520) at non-singleton dimension 0", "0.11.0rc0",
     "replaced-files-lengths"),
    ("ValueError: There is no module or parameter named 'model' in Qwen3VLForConditionalGeneration", "0.18.0",
     "hidream-head"),
    ("mat1 and mat2 must have the same dtype, but got Float and Half", "0.11.0", "rotary-float32"),
    ("dcmi module initialize failed. ret is -8005", "0.23.0", "device-or-mount-missing"),
    ("ImportError: cannot import triton_split_qkv_rmsnorm_mrope", "0.18.0", "triton-on-310p"),
    ("AI-core exception: L0C read/write conflict", "0.23.0", "aiv-or-npugraph"),
    ("Available KV cache memory: -0.87 GiB", "0.18.0", "does-not-fit"),
    ("answer: !!!!!!!!!!!!!!", "0.11.0", "float16-overflow"),
    ("Available KV cache memory: 0.09 GiB", "0.23.0", "chip-usage-twice"),
    ("Free memory on device (24.2/43.2 GiB) on startup is less than desired GPU memory utilization (0.9, 38.9 GiB).",
     "0.18.0", "somebody-holds-the-chip"),
    ("(36.00 GiB KV cache is needed, which is larger than the available KV cache memory (10.2 GiB).", "0.23.0",
     "length-of-the-checkpoint"),
    ("KeyError: 'layers.0.mlp.gate_gate_up_proj.deq_scale'", "0.18.0", "fused-twice"),
    ("ValueError: Following weights were not initialized from checkpoint: {'lm_head.weight'}", "0.23.0",
     "shard-missing"),
    ("KeyError: 'language_model.layers.0.input_layernorm.weight'", "0.23.0", "saved-by-another-transformers"),
    ("RuntimeError: aclnnMatmul not implemented for DT_BFLOAT16", "0.11.0", "auto-dtype-310p"),
    ("ValueError: height:26 and width:28 must be larger than factor:28", "0.23.0", "old-processor"),
    ("TimeoutError: RPC call to execute_model timed out.", "0.23.0", "stuck-in-allocation"),
    ("ImportError: libascend_hal.so: cannot open shared object file", "0.23.0", "driver-lib64-not-mounted"),
    ("ImportError: libascendcl.so: cannot open shared object file", "0.23.0", "cann-environment-not-set"),
    ("module 'torch_npu' has no attribute 'npu_fused_infer_attention_score'", "0.11.0", "mixed-batch-310p-011"),
    ("RuntimeError: Failed to infer device type", "0.23.0", "plugins-list-without-ascend"),
    ("error code is 507014", "0.18.0", "large-picture-on-aicpu"),
    # What people say without an error text.
    ("多张图片的回答混在一起", "0.11.0", "empty-sequence-011"),
    ("the answers to my images are mixed up", "0.23.0", "operator-mixes-pictures"),
    ("第二次请求就崩溃了", "0.11.0", "prefix-cache-310p-011"),
    ("the second identical image request crashes the engine", "0.11.0", "prefix-cache-310p-011"),
    ("输出乱码", "0.23.0", "float16-range"),
    ("多图很慢", "0.11.0", "one-call-a-picture"),
    ("it is very slow with images", "0.18.0", "masked-scatter-aicpu"),
    ("手机照片的图片方向不对", "0.23.0", "orientation-ignored"),
    ("my 16-bit PNG scan is read as white", "0.23.0", "sixteen-bit-clipped"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "release", "cause"), PASTED)
def test_first_cause(text: str, release: str, cause: str) -> None:
    ranked = suspects(recognise(text), Subject("310P", "300i-duo", release))
    assert ranked[0].cause.id == cause
    assert ranked[0].cause.evidence


def test_the_line_is_found_in_a_log() -> None:
    log = "\n".join(["INFO start"] * 500 + ["E error code is 507018"] + ["INFO more"] * 500)
    found = recognise(log)
    assert [(one.symptom.id, one.line) for one in found] == [("error-507018", 501)]
    assert "507018" in found[0].text


# Lines of healthy logs that share words with faults.
HEALTHY = [
    "INFO: Application startup complete.",
    "Using a slow image processor as `use_fast` is unset and a slow processor was saved with this model.",
    "INFO: Available KV cache memory: 10.02 GiB",
    "INFO 11-30 Loading weights took 44.68 seconds",
    "POST /v1/chat/completions HTTP/1.1 200 OK, repeated request of the same image",
    "GPU KV cache size: 400,640 tokens",
]


@pytest.mark.parametrize("line", HEALTHY)
def test_a_healthy_line_is_not_recognised(line: str) -> None:
    assert recognise(line) == []


def test_nothing_recognised_is_nothing() -> None:
    assert recognise("") == []
    assert suspects([], DUO) == []


def test_the_machine_decides_the_order() -> None:
    found = recognise("error code 507018")
    here = suspects(found, DUO)
    elsewhere = suspects(found, Subject("A2", "800i-a2", "0.18.0"))
    nowhere = suspects(found, Subject(None))
    scores = [
        next(one.score for one in ranked if one.cause.id == "merge-index-put") for ranked in (here, nowhere, elsewhere)
    ]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


def test_a_newer_release_of_the_same_error() -> None:
    scores = {}
    for release in ("0.18.0", "0.23.0"):
        ranked = suspects(recognise("507018"), Subject("310P", "300i-duo", release))
        scores[release] = next(one.score for one in ranked if one.cause.id == "merge-index-put")
    assert scores["0.23.0"] > scores["0.18.0"]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400))
def test_any_text_can_be_pasted(text: str) -> None:
    for suspect in suspects(recognise(text), DUO):
        assert 0 < suspect.score <= 1
