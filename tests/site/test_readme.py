"""The first page that somebody sees of the project: its code runs, its links lead somewhere."""

import contextlib
import io
import re
import tomllib
import zipfile

import pytest
from mhsite.beside import sharing
from mhsite.pages import running
from mhsite.pages.settings import settings
from mhsite.stories import keys, schedule
from mhsite.stories.source import ROOT, STORIES

from mhattn.lessons import files

READMES = ("README.md", "README.zh-CN.md")
PICTURE = ROOT / ".github" / "heads.svg"


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", READMES)
def test_code_prints_what_it_says_beside(name):
    (code,) = re.findall(r"```python\n(.*?)```", text(name), re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    sizes, mistake, cache = printed.getvalue().splitlines()
    said = re.findall(r"print\(.*\)  # (.*)", code)
    assert said[0] == sizes
    assert re.match(r"\.\.\. ([a-z ]+)", said[1])[1] in mistake
    assert float(re.match(r"[\d.]+", said[2])[0]) == float(cache)


def test_both_languages_have_the_same_code_and_commands():
    def bare(name):
        blocks = re.findall(r"```(?:python|bash)?\n(.*?)```", text(name), re.S)
        return [re.sub(r"  #.*", "", block) for block in blocks]

    assert bare(READMES[0]) == bare(READMES[1])
    assert len(bare(READMES[0])) == 4


@pytest.mark.parametrize("name", READMES)
def test_the_first_screen_has_title_site_picture_and_commands(name):
    lines = text(name).splitlines()
    assert lines[0].startswith("# ")
    head = "\n".join(lines[:20])
    home = settings()["site_url"]
    for wanted in (f"({home})", f"({home}zh/)", f"({PICTURE.relative_to(ROOT)})", "&& pytest\n"):
        assert wanted in head + "\n"
    assert "serve" in head


@pytest.mark.parametrize("name", READMES)
def test_the_size_of_all_models_is_theirs(name):
    models, python = re.findall(r"\b(\d+) MB\b", text(name))
    assert int(models) == sum(model.megabytes for model in files.known_models())
    if folder := running.fetched():
        assert int(python) == round(sum(running._sizes(folder)) / 1e6)


@pytest.mark.parametrize("name", READMES)
def test_links_lead_to_files_and_pages(name):
    home, repository = settings()["site_url"], settings()["repo_url"]
    for link in re.findall(r"\]\(([^)]+)\)", text(name)):
        if link.startswith(home):
            _, chinese, place = link.removeprefix(home).rpartition("zh/")
            folder = ROOT / "docs" / ("zh" if chinese else "en")
            page, _, section = place.partition("#")
            page = folder / f"{page.strip('/') or 'index'}.md"
            assert page.is_file(), link
            assert not section or f"{{ #{section} }}" in page.read_text(encoding="utf-8"), link
        else:
            assert link.startswith(repository) or (ROOT / link).exists(), link


def test_the_picture_is_what_the_home_page_draws(trained):
    """It is kept, since a page of a repository or an index computes nothing."""
    (story,) = schedule.choose(["index"])
    assert story == STORIES / "index.pycon"
    assert schedule.run_stories([story], "cpu") == []
    figure = (keys.results()["index"] / "heads.svg").read_text(encoding="utf-8")
    drawn = sharing.readme_picture(figure)
    why = "write what sharing.readme_picture gives of the story's heads.svg into it"
    assert PICTURE.read_text(encoding="utf-8") == drawn, why


def test_a_package_index_gets_whole_addresses(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = archive.read(name).decode()
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", text(READMES[0])))
    assert [link for link in links if not link.startswith("https://")] == []
    urls = tomllib.loads(text("pyproject.toml"))["project"]["urls"]
    for label, url in urls.items():
        assert f"Project-URL: {label}, {url}\n" in metadata
