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


def test_nothing_recognised_is_nothing() -> None:
    assert recognise("INFO: Application startup complete.") == []
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
