"""The report says what the files give, nothing else, and notices when they change."""

import json
import re
import shutil

import pytest

from ascend_vl.errors import AscendVLError
from ascend_vl.verify import report
from ascend_vl.verify.runs import write_manifest

SCRIPT = "<script>alert('x')</script>"


@pytest.fixture
def two_runs(make_run, invoice):
    """A base and a candidate that differ in one amount."""
    changed = invoice(text=f"The total is 1042.50 {SCRIPT}", token_ids=[5, 6, 7, 8, 99])
    return make_run("base", [invoice()], prompt=SCRIPT), make_run("candidate", [changed], prompt=SCRIPT)


def page_of(runs, out):
    report.write(list(runs), out)
    return out.read_text(encoding="utf-8")


def edit(path, change):
    lines = [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()]
    change(lines[0])
    (path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_it_is_one_page_without_network_or_script(two_runs, tmp_path):
    page = page_of(two_runs, tmp_path / "r.html")
    assert "<script" not in page.lower()
    assert "&lt;script&gt;" in page
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", page) == []
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert "data:image/png;base64," in page
    markdown = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "<script" not in markdown


def test_it_speaks_both_languages(two_runs, tmp_path):
    page = page_of(two_runs, tmp_path / "r.html")
    assert "What was not run" in page and "未运行的内容" in page
    assert page.count('lang="en"') == page.count('lang="zh"') > 50


def test_it_shows_where_the_answers_part(two_runs, tmp_path):
    page = page_of(two_runs, tmp_path / "r.html")
    assert "The total is 10<mark>24.50" in page
    assert "1024.5" in page and "1042.5" in page


def test_untested_modalities_are_named(two_runs, tmp_path):
    data = report.gather(list(two_runs))
    assert {"video", "drawing", "several images in one request"} <= {item["what"] for item in data["not_run"]}


def test_an_emulated_run_is_marked_wherever_its_numbers_stand(make_run, invoice, tmp_path):
    runs = make_run("base", [invoice()]), make_run("npu", [invoice()], emulated=True)
    marked = page_of(runs, tmp_path / "r.html")
    plain = page_of((runs[0], make_run("cpu", [invoice()])), tmp_path / "p.html")
    mark = "emulated: says nothing about hardware"
    assert mark not in plain
    for line in marked.splitlines():
        if "<h3>" in line or "<h2>What was compared" in line:
            assert mark in line, line


def test_an_untouched_report_and_its_runs_check(two_runs, tmp_path):
    page_of(two_runs, tmp_path / "r.html")
    assert report.check(tmp_path / "r.html") == []
    assert [report.check(run) for run in two_runs] == [[], []]


def test_a_report_survives_being_moved_with_its_runs(two_runs, tmp_path):
    page_of(two_runs, tmp_path / "r.html")
    shutil.copytree(tmp_path, tmp_path.parent / "elsewhere")
    assert report.check(tmp_path.parent / "elsewhere" / "r.html") == []


def test_a_changed_answer_is_noticed(two_runs, tmp_path):
    page_of(two_runs, tmp_path / "r.html")
    edit(two_runs[1], lambda answer: answer.update(text="The total is 1024.50"))
    assert any("answers.jsonl" in problem for problem in report.check(two_runs[1]))
    assert any("answers.jsonl" in problem for problem in report.check(tmp_path / "r.html"))


def test_a_changed_answer_is_noticed_even_with_its_hashes_renewed(two_runs, tmp_path):
    page_of(two_runs, tmp_path / "r.html")
    edit(two_runs[1], lambda answer: answer.update(text="The total is 1024.50 due 2024-05-01."))
    write_manifest(two_runs[1])
    assert report.check(two_runs[1]) == []
    assert report.check(tmp_path / "r.html") != []


def test_a_changed_picture_is_noticed(two_runs):
    from PIL import Image

    picture = next((two_runs[0] / "images").iterdir())
    Image.new("RGB", (64, 64), (0, 0, 255)).save(picture)
    write_manifest(two_runs[0])
    assert any("hash in its name" in problem for problem in report.check(two_runs[0]))


@pytest.mark.parametrize("change", ["gone", "added"])
def test_files_that_come_or_go_are_noticed(two_runs, change):
    if change == "gone":
        (two_runs[0] / "cases.jsonl").unlink()
    else:
        (two_runs[0] / "notes.txt").write_text("x")
    assert report.check(two_runs[0]) != []


def test_an_edited_number_in_the_page_is_noticed(two_runs, tmp_path):
    page = page_of(two_runs, tmp_path / "r.html")
    assert ">0.0000<" in page
    (tmp_path / "r.html").write_text(page.replace(">0.0000<", ">1.0000<"), encoding="utf-8")
    assert report.check(tmp_path / "r.html") != []


def test_an_edited_record_in_the_page_is_noticed(two_runs, tmp_path):
    page = page_of(two_runs, tmp_path / "r.html")
    edited = page.replace("&#34;numbers_match&#34;: 0.0", "&#34;numbers_match&#34;: 1.0")
    assert edited != page
    (tmp_path / "r.html").write_text(edited, encoding="utf-8")
    assert any("numbers_match" in problem for problem in report.check(tmp_path / "r.html"))


def test_a_page_of_somebody_else_is_no_report(tmp_path):
    (tmp_path / "x.html").write_text("<html></html>")
    with pytest.raises(AscendVLError) as caught:
        report.check(tmp_path / "x.html")
    assert caught.value.exit_code == 2


def test_one_run_alone_is_shown_and_not_judged(make_run, invoice, tmp_path):
    data = report.write([make_run("only", [invoice()])], tmp_path / "r.html")
    assert data["verdict"] == "not judged"
    assert report.check(tmp_path / "r.html") == []


def test_several_candidates_make_one_report_judged_by_a_recipe(make_run, invoice, tmp_path):
    wrong = invoice(text="The total is 1042.50 due 2024-05-01.")
    runs = [make_run("base", [invoice()]), make_run("same", [invoice()]), make_run("wrong", [wrong])]
    ours = report.write(runs, tmp_path / "ours.html")
    port = report.write(runs, tmp_path / "port.html", recipe="port")
    assert [c["verdict"] for c in ours["comparisons"]] == ["pass", "fail"]
    assert [item["require"] for item in port["comparisons"][0]["required"]] == [
        "token_match.mean=0.9",
        "semantic_similarity.mean=0.95",
    ]
    for name in ("ours", "port"):
        assert report.check(tmp_path / f"{name}.html") == []
    page = (tmp_path / "port.html").read_text(encoding="utf-8")
    assert "At a glance" in page and page.count("<details open>") == 1
    edited = page.replace("&#34;recipe&#34;: &#34;port&#34;", "&#34;recipe&#34;: &#34;default&#34;")
    assert edited != page
    (tmp_path / "port.html").write_text(edited, encoding="utf-8")
    assert report.check(tmp_path / "port.html") != []


def test_markdown_stands_in_each_language(two_runs, tmp_path):
    page_of(two_runs, tmp_path / "r.html")
    english, chinese = ((tmp_path / name).read_text(encoding="utf-8") for name in ("r.md", "r.zh.md"))
    assert "## What was not run" in english and "## 未运行的内容" in chinese
    assert "未" not in english and "not tested" not in chinese
    assert "<script" not in chinese
    # Of a case that differs both answers are shown, and why.
    assert "1042.50" in english and "位置 4：差异" in chinese
