"""Whatever is pasted, the linter answers."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_vl.plan.lint import lint

DATA = Path(__file__).parents[1] / "data"
TEXTS = [
    (DATA / name).read_text(encoding="utf-8")
    for name in ("ports/qwen3-vl-300i-duo.txt", "ports/hidream-o1-910b.txt", "lint/official-300i-duo.sh")
]
TEXTS.append("services:\n  a:\n    image: x\n    command: [vllm, serve, m, --dtype, bfloat16]\n")
FILLERS = ["", "\\", '"', "'", "\n", " \\ \n", "`", "$(", "#", "\x00", "“", "--", "="]
FLAGS = [
    "--dtype bfloat16", "--dtype=float16", "--max-model-len 99999", "--max_model_len 8k", "-tp 2", "--enforce-eager",
    "--compilation-config '{\"cudagraph_capture_sizes\": [1,2,3]}'", "--trust-remote-code", "--kv-cache-dtype fp8",
    "--enable-lora", "--nnodes 2", "--gpu-memory-utilization 0.99", "--no-enable-prefix-caching", "--seed 1",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mangled_documents(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(0, 5))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 60)))
        filler = data.draw(
            st.sampled_from(["", "\\", '"', "'", "\n", " \\ \n", "`", "$(", "#", "\x00", "“", "--", "="])
        )
        text = text[:start] + filler + text[end:]
    report = lint(text, data.draw(st.sampled_from([None, "300i-duo", "910b3", "cpu"])))
    lint(report.repaired)
    assert report.findings == tuple(sorted(report.findings, key=lambda one: one.line))
    assert report.exit_code == int(any(one.severity == "error" for one in report.findings))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    lint(text, "300i-duo", text[:10])
    lint(f"vllm serve {text}", "300i-duo")
    lint(f"docker run {text}", "300i-duo")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(FLAGS), max_size=8), st.sampled_from(["300i-duo", "910b3", "a3"]))
def test_the_repaired_command_has_no_error(flags: list[str], chip: str) -> None:
    """Repairing leaves nothing that a rule calls an error, and repairing twice changes nothing more."""
    text = "vllm serve m " + " ".join(flags)
    report = lint(text, chip, "0.23.0.post1")
    if not report.repaired:
        assert report.exit_code == 0
        return
    again = lint(report.repaired, chip, "0.23.0.post1")
    assert again.exit_code == 0, report.repaired
    assert again.repaired in ("", report.repaired)
