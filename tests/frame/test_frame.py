"""What must hold of the repository as a whole."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "vllm", "transformers", "vllm_ascend")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, cwd=ROOT)


def imported_by(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint('MODULES', *{{m.split('.')[0] for m in sys.modules}})"
    done = run("-c", probe)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("MODULES", 1)[1].split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not imported_by("import ascend_vl").intersection(HEAVY)


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["inspect", "--help"], ["serve", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    lines = [
        f"sys.argv = ['ascend-vl', *{arguments!r}]",
        "from ascend_vl.cli.app import main",
        "try:",
        "    main()",
        "except SystemExit as end:",
        "    assert not end.code, end.code",
    ]
    code = "\n".join(lines)
    assert not imported_by(code).intersection(HEAVY)


def test_every_listed_command_exists_and_has_help() -> None:
    from ascend_vl.cli.app import COMMANDS, available

    assert available() == list(COMMANDS)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    return [ROOT / name for name in listed.splitlines()]


def test_the_repository_stands_alone() -> None:
    # Spelled in pieces, so that this file does not find itself.
    pieces = [
        "/wo" + "rk/",
        r"\.\./sha" + "red",
        "pypi" + r"\.org",
        "python" + "hosted",
        "/ro" + r"ot/(?!\.cache)",
        "/tmp/" + "(team|train|emu|probes|engine|verify)",
    ]
    forbidden = re.compile("|".join(pieces))
    found = []
    for path in tracked_files():
        if not path.is_file() or path.suffix in {".png", ".npz", ".safetensors", ".jpg", ".gz"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if forbidden.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line[:120]}")
    assert not found, "\n".join(found)


def test_docs_have_the_same_structure_in_both_languages() -> None:
    def pages(language: str) -> set[str]:
        return {str(p.relative_to(ROOT / "docs" / language)) for p in (ROOT / "docs" / language).rglob("*.md")}

    assert pages("en") == pages("zh")
    assert pages("en")


def test_the_two_readmes_show_the_same_commands() -> None:
    def commands(name: str) -> list[str]:
        blocks = re.findall(r"```(?:bash|console|sh)\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)
        return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines() if line.strip()]

    assert commands("README.md") == commands("README.zh.md")
    assert "make demo" in commands("README.md")
    assert "make test" in commands("README.md")
