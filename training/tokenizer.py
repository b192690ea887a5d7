"""The demo model's own byte-level BPE, in the files that Transformers and vLLM read without remote code."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from . import language, world

VOCAB_SIZE = 768
NAMES = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think> <|boi_token|> <|bor_token|> <|eor_token|> <|bot_token|> "
    "<|tms_token|>"
)
SPECIALS = NAMES.split()
NOT_SPECIAL = {s for s in SPECIALS if not s.startswith("<|") or "fim" in s or s in ("<|repo_name|>", "<|file_sep|>")}
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{%- for m in messages -%}<|im_start|>{{ m.role }}{{ '\\n' }}"
    "{%- if m.content is string -%}{{ m.content }}{%- else -%}"
    "{%- for c in m.content -%}"
    "{%- if c.type == 'image' or c.type == 'image_url' -%}<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif c.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>{%- endif -%}{%- endfor -%}"
    "{%- for c in m.content -%}{%- if 'text' in c -%}{{ c.text }}{%- endif -%}{%- endfor -%}"
    "{%- endif -%}<|im_end|>{{ '\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant{{ '\\n' }}{%- endif -%}"
)


def corpus() -> list[str]:
    """Lines of the generator's own text; Chinese is given word by word so that no merge crosses a word."""
    rng = world.stream("tokenizer", 0)
    lines = ["user", "assistant", "system", "You are a helpful assistant."] * 200
    for _ in range(4000):
        scene = world.random_scene(rng, "train")
        other = world.random_scene(rng, "train")
        lines += [language.caption(scene, "en"), language.listing(scene)]
        answers = [ask(scene, "en", rng) for ask in (*language.LONG.values(), *language.SHORT.values())]
        answers += [ask((scene, other), "en", rng) for ask in language.PAIR.values()]
        lines += [text for qa in answers if qa is not None for text in qa]
    lines += language.HELLO_QUESTIONS["en"] * 40 + [language.HELLO["en"], language.NO_PICTURE["en"]] * 200
    return lines + language.lexicon() * 500


def build() -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        min_frequency=10,
    )
    tok.train_from_iterator(corpus(), trainer)
    tok.add_tokens([AddedToken(s, special=s not in NOT_SPECIAL, normalized=False) for s in SPECIALS])
    return tok


@lru_cache(maxsize=1)
def shared() -> Tokenizer:
    return build()


def token(name: str) -> int:
    """The id of a special token; its position in the list fixes it."""
    found = shared().token_to_id(name)
    assert found is not None, name
    return found


def save(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tok = shared()
    tok.save(str(directory / "tokenizer.json"))
    model = json.loads(tok.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    (directory / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    (directory / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    decoder = {
        str(token(s)): {
            "content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": s not in NOT_SPECIAL,
        }
        for s in SPECIALS
    }  # fmt: skip
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": decoder,
        "additional_special_tokens": [s for s in SPECIALS if s not in NOT_SPECIAL and s != "<|endoftext|>"],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "processor_class": "Qwen3VLProcessor",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n")
