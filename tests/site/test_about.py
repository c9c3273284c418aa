"""The line below a page's title: minutes, what it needs, downloads."""

import re
import tomllib

import pytest
import yaml
from mhsite.pages import extension, fragments, page, release
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, ROOT, Section, SourceError

SECTION = '```pycon\n--8<-- "attention.pycon:mix"\n```\n'
CODE = ">>> x = 1\n>>> for i in x:\n...     print(i)\n1\n2\n3\n>>> x\n>>> x\n>>> x"  # 6 lines


@pytest.fixture(autouse=True)
def story(monkeypatch):
    section = Section(DOCS / "a.pycon", "mix", 1, CODE)
    monkeypatch.setattr(page, "shown_section", lambda reference, language: section)


def parse(text, language="en", name="masks.md"):
    return page.parse(text, DOCS / language / name)


@pytest.mark.parametrize(
    ("language", "words", "minutes"),
    [
        ("en", "One `two three` $four$ [five](masks.md), six's sev-en. " * 44, 2),  # 308 words
        ("en", "word " * 219, 1),  # with the title 220
        ("en", "word " * 220, 2),
        ("zh", "字" * 399, 1),  # with the title 400
        ("zh", "字，" * 400, 2),
        ("zh", "字 `code` 的 SDPA。" * 225, 3),  # 900 characters and words
        ("en", SECTION * 10, 5),  # 240 s of code and a word
        ("en", "/// details | Answer\n" + "word " * 9_000 + "\n" + SECTION + "///\n", 1),
        ("en", "/// note | Title\n" + "word " * 218 + "\n///\n", 1),  # with titles 220
        ("en", "/// note | Title\n" + "word " * 219 + "\n///\n", 2),
    ],
)
def test_minutes_are_those_of_what_is_not_folded(language, words, minutes):
    title = "字" if language == "zh" else "Title"
    made = parse(f"# {title} {{ #title }}\n\n{words}\n", language)
    assert fragments.minutes(made) == minutes


def test_an_exercise_takes_time_to_write():
    text = "# T { #t }\n\n" + "/// task | Write it\n///\n\n" * 6
    pages = [parse(text, name=name) for name in ("a.md", "labs/a.md", "from-scratch.md")]
    assert [fragments.minutes(made) for made in pages] == [31, 31, 41]  # the last says how long
    assert fragments.minutes(parse("# T { #t }\n\n/// note | Look\n///\n")) == 1


NEEDED = ("attention.md", "labs/every-head.md")


def line(language, name, text):
    return fragments.about(parse(text, language, name), str)


def test_line_in_both_languages():
    text = "# T { #t }\n\n<!-- needs attention.md labs/every-head.md -->\n"
    names = [page.read(DOCS / "en" / name).headings[0].title for name in NEEDED]
    first, second = (name.split(":")[0] for name in names)
    assert line("en", "masks.md", text) == (
        f'<p class="mh-about">1 min · Needs: <a href="attention/">{first}</a>, '
        f'<a href="labs/every-head/">{second}</a></p>'
    )
    made = line("zh", "masks.md", text + SECTION)
    assert made.startswith('<p class="mh-about">约 1 分钟 · 先读：<a href="attention/">')
    assert "</a>、<a" in made
    assert made.endswith('自己运行：<a href="downloads/masks.ipynb" download>笔记本</a> · '
                         '<a href="downloads/masks.py" download>脚本</a> · '
                         f'<a href="{release.colab(page.read(DOCS / "zh" / "masks.md"))}">'
                         '在 Colab 中打开</a> · '
                         '<a href="./#mirror">国内怎么装</a></p>')  # fmt: skip


def test_what_is_looked_up_takes_no_time():
    for name in ("index.md", "reference/index.md", "glossary.md", "bibliography.md", "changes.md"):
        assert line("en", name, "# T { #t }\n") == ""


def test_a_page_that_is_not_there_is_an_error_with_its_line():
    made = parse("# T { #t }\n\n<!-- needs masks.md nosuch.md -->\n")
    with pytest.raises(SourceError, match=r"masks.md:3: there is no page nosuch.md"):
        extension.check(made)


def test_both_languages_need_the_same():
    made = parse("# T { #t }\n\n<!-- needs attention.md masks.md -->\n")
    assert [part.value for part in page.skeleton(made)][1:] == ["attention.md masks.md"]


def test_home_offers_no_downloads():
    """Its code is two pictures; what a newcomer should click is something else."""
    assert line("en", "index.md", "# T { #t }\n\n" + SECTION) == ""


def test_a_page_says_which_model_it_reads(monkeypatch):
    code = '>>> p = data_file("models/e5-small-q4.bin")'
    section = Section(DOCS / "a.pycon", "mix", 1, code)
    monkeypatch.setattr(page, "shown_section", lambda reference, language: section)
    assert line("en", "masks.md", "# T { #t }\n\n" + SECTION).endswith(
        ">Open in Colab</a> · reads a model of 72 MB</p>"
    )


def test_a_page_says_how_to_cite_it():
    made = fragments.cite(page.read(DOCS / "zh" / "masks.md"))
    title = page.read(DOCS / "zh" / "masks.md").headings[0].title
    assert "<summary>引用本页</summary>" in made
    assert f"@misc{{mhattn-masks-zh,\n  title = {{{{{title}}}}},\n" in made
    assert f"  url = {{{settings()['site_url']}zh/masks/}},\n" in made
    entry = re.search("<code>(.*)</code>", made, re.S)[1]
    assert entry.count("{") == entry.count("}")
    assert fragments.cite(page.read(DOCS / "en" / "glossary.md")) == ""


def test_version_date_and_licence_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    asked = settings()
    assert cited["version"] == project["version"] == release.version
    assert cited["license"] == project["license"]
    assert cited["authors"] == project["authors"]
    assert cited["url"] == asked["site_url"]
    assert cited["repository-code"] == asked["repo_url"]
    for language, licence in (("en", "MIT licence"), ("zh", "MIT 许可证")):
        made = release.footer(language)
        assert made.startswith(f"mhattn {project['version']} ({release.date():%Y-%m-%d}) · <a ")
        assert made.endswith(f'/blob/main/LICENSE">{licence}</a>')


def test_a_deep_page_says_where_the_course_has_what_it_needs():
    text = "# T { #t }\n\n<!-- needs attention.md labs/every-head.md -->\n"
    assert "Attention</a> (course, 2), <a" in line("en", "kv-cache.md", text)
    assert "注意力</a>（入门课第 2 页）、<a" in line("zh", "kv-cache.md", text)
