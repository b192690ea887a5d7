"""Reading shells, containers and compose files."""

from ascend_vl.plan.lint import lint
from ascend_vl.plan.lint.container import as_container, count_devices, covers, image_release, mounted, read_size
from ascend_vl.plan.lint.serve_command import as_serve, capture_sizes, read_number
from ascend_vl.plan.lint.shell import read_script, split_words

DUO = "300i-duo"
DRIVER = "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver -v /etc/ascend_install.info:/etc/ascend_install.info"
TOOLS = "-v /usr/local/dcmi:/usr/local/dcmi -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi"
DEVICES = "--device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc"
GOOD = "--dtype float16 --max-model-len 8192 --enforce-eager --no-enable-prefix-caching"


def rules(text: str, chip: str | None = DUO, version: str | None = "0.23.0.post1") -> list[str]:
    return [one.rule for one in lint(text, chip, version).findings]


def words(text: str) -> list[str]:
    return [word.text for word in split_words([(1, text)])[0]]


def test_words() -> None:
    assert words('a \'b c\' "d \\" e" f\\ g # h') == ["a", "b c", 'd " e', "f g"]
    assert words("a&&b;c||d | e") == ["a", "&&", "b", ";", "c", "||", "d", "|", "e"]
    assert words("a ''") == ["a", ""]


def test_lines_of_words() -> None:
    script = read_script("\n\nvllm serve m \\\n  --port 1 \\\n  --dtype x\n")
    assert [(word.text, word.line) for word in script.commands[0].words][-2:] == [("--dtype", 5), ("x", 5)]


def test_variables_are_filled_in() -> None:
    script = read_script('M=/models/q\nexport TP=2\nvllm serve "$M" -tp ${TP} --port $1\n')
    serve = as_serve(script.commands[0])
    assert serve is not None
    assert serve.model == "/models/q"
    assert serve.tensor_parallel == 2
    last = serve.last("--port")
    assert last is not None and last.value == "$1"
    assert "lint-number-invalid" not in rules(f"vllm serve m {GOOD} --port $1")


def test_a_good_command_has_no_finding() -> None:
    assert rules(f"vllm serve m {GOOD}") == []
    assert lint(f"vllm serve m {GOOD}", DUO, "0.23.0.post1").repaired == ""


def test_every_spelling_of_a_flag_is_the_same_flag() -> None:
    found = rules(f"vllm serve m {GOOD} --tensor-parallel-size 1 -tp 2")
    assert found == ["lint-repeated-contradiction"]
    assert rules(f"vllm serve m {GOOD} --max_model_len=8192") == ["lint-repeated"]
    on = f"vllm serve m {GOOD} --enable-prefix-caching"
    assert rules(on) == ["lint-repeated-contradiction"]
    assert "flag-prefix-caching-310p" in rules(on, version="0.11.0")
    assert "flag-prefix-caching-310p" not in rules(on, "910b3", "0.11.0")


def test_numbers_as_vllm_reads_them() -> None:
    assert read_number("16384") == 16384
    assert read_number("32k") == 32000
    assert read_number("32K") == 32768
    assert read_number("0.9") == 0.9
    assert read_number("$1") is None
    assert "flag-max-model-len-310p" in rules(f"vllm serve m {GOOD.replace('8192', '32K')}")


def test_broken_continuations() -> None:
    assert rules(f"vllm serve m \\ \n {GOOD}") == ["lint-broken-continuation"]
    assert rules(f"vllm serve m\n  {GOOD}") == ["lint-broken-continuation"]
    assert rules(f"vllm serve m \\\n # why\n {GOOD}") == ["lint-comment-in-continuation"]
    assert rules(f"vllm serve m \\\r\n {GOOD}") == ["lint-broken-continuation"]
    assert rules(f"vllm serve m \\\n {GOOD} \\") == []


def test_quotes_and_dashes_of_formatted_pages() -> None:
    found = rules(f"vllm serve m {GOOD} —port 8000")
    assert found == ["lint-smart-quote"]
    assert "lint-open-quote" in rules(f"vllm serve m {GOOD} --served-model-name 'q")


def test_json_values() -> None:
    bad = """--compilation-config '{"cudagraph_mode": FULL_DECODE_ONLY}'"""
    assert "lint-json-invalid" in rules(f"vllm serve m {GOOD} {bad}")
    assert "lint-value-missing" in rules(f"vllm serve m {GOOD} --port")
    assert capture_sizes('{"cudagraph_capture_sizes": [1, 2,4]}') == [1, 2, 4]
    assert capture_sizes("nothing") == []


def test_graph_sizes_matter_only_with_several_chips() -> None:
    sizes = """--compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1,2,4]}'"""
    assert "flag-graph-sizes-310p-tp" not in rules(f"vllm serve m {GOOD} {sizes}")
    assert "flag-graph-sizes-310p-tp" in rules(f"vllm serve m {GOOD} {sizes} -tp 2")
    assert "flag-graph-sizes-310p-tp" not in rules(f"vllm serve m --dtype bfloat16 {sizes} -tp 2", "910b3")


def test_the_old_way_to_start_the_server() -> None:
    found = rules("python3 -m vllm.entrypoints.openai.api_server --model m --dtype bfloat16")
    assert "flag-dtype-bfloat16-310p" in found


def test_a_command_inside_bash_c() -> None:
    found = lint("docker run IMAGE bash -c 'cd / && vllm serve m --dtype bfloat16'", DUO).findings
    assert "flag-dtype-bfloat16-310p" in [one.rule for one in found]


def test_environment() -> None:
    serve = f"vllm serve m {GOOD}"
    assert rules(f"HCCL_OP_EXPANSION_MODE=AIV {serve}") == ["env-aiv-310p"]
    assert rules(f"export HCCL_OP_EXPANSION_MODE=AIV\n{serve}") == ["env-aiv-310p"]
    assert rules(f"HCCL_OP_EXPANSION_MODE=AIV\n{serve}") == []
    assert rules(f"export VLLM_ASCEND_ENABLE_NZ=0\n{serve}") == ["env-nz-ignored-310p"]
    assert rules(serve, DUO, "0.11.0") == ["env-nz-on-011"]
    assert rules(f"export VLLM_ASCEND_ENABLE_NZ=1\n{serve}", DUO, "0.11.0") == ["env-nz-set-011"]
    assert rules(f"export VLLM_PLUGINS=ascend_vl\n{serve}") == ["env-plugins-without-ascend"]
    assert rules(f"export VLLM_PLUGINS=ascend,ascend_vl\n{serve}") == []
    assert rules(f"export ASCEND_RT_VISIBLE_DEVICES=0\n{serve} -tp 2") == ["lint-too-many-visible"]


def test_containers() -> None:
    image = "quay.io/ascend/vllm-ascend:v0.23.0.post1-310p"
    base = f"docker run --shm-size 10g {DEVICES} {DRIVER} {TOOLS}"
    assert rules(f"{base} --device /dev/davinci0 {image}") == []
    assert rules(f"{base} {image}") == ["lint-no-device"]
    both = f"{base} --device /dev/davinci0 {image} vllm serve m {GOOD} -tp 2"
    assert rules(both) == ["lint-too-few-devices"]
    missing = rules(f"docker run --device /dev/davinci0 {image}")
    assert missing.count("lint-management-device-missing") == 3
    assert missing.count("lint-mount-missing") == 2
    assert missing.count("lint-mount-advised") == 3
    assert rules(f"docker run --runtime ascend -e ASCEND_VISIBLE_DEVICES=0-1 --ipc=host {image}") == []
    small = f"docker run --shm-size 1g {DEVICES} {DRIVER} {TOOLS} --device /dev/davinci0 --device /dev/davinci1 {image}"
    assert rules(small) == ["lint-shm-small"]


def test_images() -> None:
    assert image_release("quay.io/ascend/vllm-ascend:v0.11.0rc0-310p-openeuler") == ("0.11.0rc0", "310P")
    assert image_release("m.daocloud.io/quay.io/ascend/vllm-ascend:v0.18.0-a3") == ("0.18.0", "A3")
    assert image_release("quay.io/ascend/vllm-ascend:v0.18.0") == ("0.18.0", "A2")
    assert image_release("python:3.11") == (None, None)
    assert image_release("localhost:5000/ascend/vllm-ascend") == (None, None)
    run = f"docker run --shm-size 10g {DEVICES} {DRIVER} {TOOLS} --device /dev/davinci0 quay.io/ascend/vllm-ascend"
    assert rules(f"{run}:v0.23.0.post1") == ["lint-image-kind"]
    assert rules(f"{run}:v0.13.0-310p") == ["lint-image-release"]
    assert rules(f"{run}:v0.11.0-310p") == ["lint-image-legacy"]
    assert rules(f"{run}:latest") == ["lint-image-untagged"]


def test_the_repaired_container_is_good() -> None:
    text = "docker run -it quay.io/ascend/vllm-ascend:v0.13.0 vllm serve m --tensor-parallel-size 2"
    report = lint(text, DUO)
    again = lint(report.repaired, DUO)
    assert [one.rule for one in again.findings if one.severity != "note"] == []
    assert "v0.23.0.post1-310p" in report.repaired


def test_framework_files_mounted_over() -> None:
    mount = "-v ./qwen3_vl.py:/vllm-workspace/vllm/model_executor/models/qwen3_vl.py"
    script = read_script(f"docker run {mount} IMAGE")
    container = as_container(script.commands[0])
    assert container is not None and container.mounts[0].endswith("qwen3_vl.py")
    assert "lint-framework-patched" in rules(f"docker run {mount} IMAGE")
    assert "lint-framework-patched" in rules("docker cp a.py box:/opt/vllm_ascend/worker/worker_v1.py")
    assert "lint-checkpoint-edited" in rules("sed -i s/bfloat16/float16/ /models/q/config.json")


def test_a_mount_covers_what_is_below_it() -> None:
    assert covers("/usr/local/Ascend/driver", "/usr/local/Ascend/driver/lib64")
    assert covers("/usr/local/dcmi", "/usr/local/dcmi")
    assert not covers("/usr/local/dcm", "/usr/local/dcmi")
    assert not covers("/models", "/usr/local/dcmi")


def test_small_readers() -> None:
    assert (read_size("10g"), read_size("64M"), read_size("x")) == (10 * 2**30, 64 * 2**20, None)
    assert (count_devices("0,1"), count_devices("0-3"), count_devices("a")) == (2, 4, None)
    assert (mounted("/a:/b:ro"), mounted("/a:/b/"), mounted("/c")) == ("/b", "/b", "/c")


COMPOSE = """
services:
  chat:
    image: quay.io/ascend/vllm-ascend:v0.23.0.post1-310p
    shm_size: 64m
    devices:
      - /dev/davinci0:/dev/davinci0
      - /dev/davinci_manager
    volumes:
      - /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro
    environment:
      HCCL_OP_EXPANSION_MODE: AIV
    ports: ["8000:8000"]
    command: >
      vllm serve /models/q --dtype bfloat16
      --max-model-len 16384 --tensor-parallel-size 2
"""


def test_compose() -> None:
    found = [(one.line, one.rule) for one in lint(COMPOSE).findings]
    for wanted in (
        (12, "env-aiv-310p"),
        (15, "flag-dtype-bfloat16-310p"),
        (4, "lint-too-few-devices"),
        (4, "lint-management-device-missing"),
    ):
        assert wanted in found, found
    assert lint(COMPOSE).kind == "310P"


def test_nothing_to_judge() -> None:
    assert rules("hello") == ["lint-nothing"]
    assert rules("") == ["lint-nothing"]
