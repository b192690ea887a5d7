"""Does the text head say anything? HiDream-O1's own weights may answer every question with nothing at all.

That would be the same as the reference, and still not useful for chat; so it is looked at once, and said.
"""

from typing import Any

QUESTION = "What is 2+2?"
TOKENS = 8


async def look(engine: Any, tokenizer: Any, stop_ids: set[int]) -> dict[str, Any]:
    """{"degenerate": bool, "tokens": [...]} from one greedy answer of a few tokens.

    Degenerate is an answer that ends at once, or repeats one token. Raises what the engine raises.
    """
    from vllm import SamplingParams

    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS)
    tokens: list[int] = []
    async for output in engine.generate(text, sampling, "ascend-vl-text-head"):
        tokens = list(output.outputs[0].token_ids)
    return {"degenerate": is_degenerate(tokens, stop_ids), "tokens": tokens}


def is_degenerate(tokens: list[int], stop_ids: set[int]) -> bool:
    """Whether these greedy tokens are no answer: none before the end, or one token over and over."""
    said = [token for token in tokens if token not in stop_ids]
    return not said or (len(said) == TOKENS and len(set(said)) == 1)
