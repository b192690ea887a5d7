from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_vl.drawing import sequence
from ascend_vl.drawing.errors import Refusal
from ascend_vl.drawing.recipes import Constants


@pytest.mark.parametrize("case", oracle.CASES)
def test_ids_positions_and_types_are_the_references(case: str, tokenizer: Any, image_processor: Any) -> None:
    stored = oracle.values(case)
    for k, branch in enumerate(oracle.job(case, tokenizer, image_processor).branches):
        assert np.array_equal(branch.input_ids, stored[f"b{k}_input_ids"])
        assert np.array_equal(branch.position_ids, stored[f"b{k}_position_ids"])
        assert np.array_equal(branch.token_types, stored[f"b{k}_token_types"])
        assert np.array_equal(branch.patch_mask, stored[f"b{k}_vinput_mask"])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4))
def test_pictures_never_share_a_position(grids: list[tuple[int, int]]) -> None:
    positions = sequence.patch_positions(grids[0], grids[1:], 4096)
    assert positions.shape == (3, sum(r * c for r, c in grids))
    assert len({tuple(column) for column in positions.T}) == positions.shape[1]
    assert positions.min() == 4096


def test_a_second_reference_begins_beyond_the_longer_side_of_the_first() -> None:
    positions = sequence.patch_positions((2, 3), [(4, 1), (1, 1)], 4096)
    assert positions[:, 6].tolist() == [4099, 4099, 4099]
    assert positions[:, 10].tolist() == [4103, 4103, 4103]


def test_text_after_an_image_counts_on_from_its_longer_side() -> None:
    positions = sequence.text_positions([1, 9, 9, 9, 9, 9, 9, 2], pad=9, conditions=[(2, 3)])
    assert positions.T.tolist() == [[0] * 3, *([1, 1 + r, 1 + c] for r in range(2) for c in range(3)), [4] * 3]


@pytest.mark.parametrize("prompt", ["a <|image_pad|>", "<|vision_start|>", "x<|tms_token|>", "<|im_end|>\n", "\0"])
def test_prompts_that_spell_control_tokens_are_refused(prompt: str) -> None:
    with pytest.raises(Refusal) as refused:
        sequence.check_prompt(prompt)
    assert refused.value.code == "drawing-prompt-token" and refused.value.param == "prompt"


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_empty_prompts_are_refused(prompt: str) -> None:
    with pytest.raises(Refusal, match="drawing-prompt:"):
        sequence.check_prompt(prompt)


@pytest.mark.parametrize("prompt", ["a < b | c > d", "2 <| 3", "画一个<红>方块"])
def test_ordinary_punctuation_is_not_refused(prompt: str) -> None:
    sequence.check_prompt(prompt)


def test_a_prompt_that_reaches_the_picture_is_refused(tokenizer: Any) -> None:
    with pytest.raises(Refusal, match="drawing-prompt-long"):
        sequence.build_branch(tokenizer, "x" * 4100, (2, 2), [], [], Constants())
    assert sequence.build_branch(tokenizer, "x" * 4000, (2, 2), [], [], Constants()).prefix > 4000


def test_a_tokenizer_with_another_timestep_token_is_refused(tokenizer: Any) -> None:
    with pytest.raises(Refusal, match="drawing-tokenizer"):
        sequence.build_branch(tokenizer, "a", (2, 2), [], [], Constants(tms_token_id=7))


def test_a_template_that_drops_pictures_is_refused(tokenizer: Any) -> None:
    class Dropping:
        chat_template = "x"

        def encode(self, text: str, **given: Any) -> Any:
            return tokenizer.encode(text, **given)

        def apply_chat_template(self, conversation: Any, **given: Any) -> str:
            return "<|im_start|>user\nno place for pictures"

    with pytest.raises(Refusal, match="drawing-template"):
        sequence.build_branch(Dropping(), "a", (2, 2), [(1, 1)], [(1, 1)], Constants())


def test_without_a_template_the_plain_one_gives_the_same_ids(tokenizer: Any) -> None:
    class Bare:
        chat_template = None

        def encode(self, text: str, **given: Any) -> Any:
            return tokenizer.encode(text, **given)

        def apply_chat_template(self, conversation: Any, **given: Any) -> str:
            raise AssertionError

    ours, theirs = (
        sequence.build_branch(t, "a cat", (2, 2), [(1, 2)], [(3, 2)], Constants()) for t in (Bare(), tokenizer)
    )
    assert np.array_equal(ours.input_ids, theirs.input_ids)
