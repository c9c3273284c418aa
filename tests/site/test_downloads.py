"""The links below a title, clicked: a file arrives and opens, and what it asks for is installed."""

import os
import re
import subprocess
import sys

import nbformat
import pytest
from mhsite.pages import release
from mhsite.pages.page import models_of
from mhsite.pages.settings import settings
from mhsite.stories.source import ROOT
from packaging.requirements import Requirement
from test_site import address, blocks, each_language, source

# One of each kind: plain, with a measurement, with a model, a lab.
each_kind = pytest.mark.parametrize(
    "name", ["masks.md", "roofline.md", "browse-heads.md", "labs/every-head.md"]
)


@pytest.fixture
def download(open_page, tmp_path):
    """Clicks a link of a page that downloads; where the file is then."""

    def click(language, name, ending):
        page = open_page(address(language, name))
        with page.expect_download() as arriving:
            page.click(f".mh-about a[download][href$='.{ending}']")
        stem = name.removesuffix(".md").split("/")[-1]
        assert arriving.value.suggested_filename == f"{stem}.{ending}"
        arriving.value.save_as(tmp_path / f"{stem}.{ending}")
        return tmp_path / f"{stem}.{ending}"

    return click


def check(requirement, language, name):
    """It is what the page's code needs, of the commit that the site was built from."""
    needed = Requirement(requirement)
    assert needed.name == "mhattn"
    assert needed.extras == ({"models"} if models_of(source(language, name)) else set())
    assert needed.url == f"git+{settings()['repo_url']}@{release.commit()}"


@each_kind
@each_language
def test_a_notebook_arrives_and_installs_first(download, site, language, name):
    made = nbformat.read(download(language, name, "ipynb"), as_version=4)
    nbformat.validate(made)
    install, *codes = [cell for cell in made.cells if cell.cell_type == "code"]
    first, _, instead = install.source.splitlines()
    check(re.fullmatch(r'%pip install --quiet "(.+)"', first)[1], language, name)
    wheel = Requirement(re.fullmatch(r'# %pip install .*"(.+)"', instead)[1])
    assert wheel.url == settings()["site_url"] + release.wheel_place()
    assert (site / release.wheel_place()).is_file()
    assert install.outputs == []
    for number, cell in enumerate(codes):
        compile(cell.source, f"cell {number}", "exec")
    given = [output for cell in codes for output in cell.outputs]
    assert any(output.get("name") == "stdout" or "text/html" in output.data for output in given)
    shown = blocks(site, language, name)
    assert sum(cell.source.replace(";", "") in map(plain, shown) for cell in codes) > len(codes) / 2


def plain(code):
    return code.rstrip("\n").replace(";", "")


@each_kind
@each_language
def test_a_script_arrives_and_says_what_it_needs(download, language, name):
    text = download(language, name, "py").read_text(encoding="utf-8")
    compile(text, name, "exec")
    head = text.split("\n\n")[0].splitlines()
    assert all(line.startswith("# ") for line in head)
    assert head[0] == f"# {source(language, name).headings[0].title}"
    check(re.fullmatch(r'# python -m pip install "(.+)"', head[-1])[1], language, name)
    assert text.count("\n# %%") >= 3


def test_what_they_ask_for_is_installed_from_the_commit(download, tmp_path):
    """With the very line; git finds this clone in the place of its host."""
    head = download("en", "masks.md", "py").read_text(encoding="utf-8").split("\n\n")[0]
    wanted = re.findall(r'pip install "(.+)"', head)[-1]
    instead = {"KEY_0": f"url.{ROOT.as_uri()}.insteadOf", "VALUE_0": settings()["repo_url"]}
    git = {f"GIT_CONFIG_{name}": value for name, value in (instead | {"COUNT": "1"}).items()}
    where = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    run([*pip, "--no-build-isolation", "--target", where, wanted], tmp_path, **git)
    code = "import mhattn; print(mhattn.__file__, mhattn.__version__)"
    said = run([sys.executable, "-c", code], tmp_path, PYTHONPATH=str(where)).split()
    assert said == [str(where / "mhattn" / "__init__.py"), release.version]


def run(command, folder, **environment):
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@each_kind
@each_language
def test_colab_is_sent_to_a_notebook_that_is_there(open_page, site, language, name):
    """In the branch that the site's workflow makes of `downloads`."""
    page = open_page(address(language, name))
    asked = []
    page.context.route(
        "https://colab.research.google.com/**",
        lambda route: (asked.append(route.request.url), route.fulfill(body="Colab")),
    )
    page.click(".mh-about a[href*='colab']")
    page.wait_for_url("https://colab.research.google.com/**")
    owner = settings()["repo_url"].removeprefix("https://github.com/")
    place = asked[0].removeprefix(
        f"https://colab.research.google.com/github/{owner}/blob/notebooks/"
    )
    below, rest = ("zh/", place.removeprefix("zh/")) if language == "zh" else ("", place)
    assert rest == name.replace(".md", ".ipynb")
    assert (site / below / "downloads" / rest).is_file()
    copied = (ROOT / ".github" / "workflows" / "site.yml").read_text(encoding="utf-8")
    assert "cp -r site/downloads/. notebooks/\n" in copied
    assert "cp -r site/zh/downloads notebooks/zh\n" in copied
