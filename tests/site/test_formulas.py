"""KaTeX, which lies in the tree: it is what its README says, and what npm has."""

import base64
import hashlib
import re
import tarfile

import npm_packages
import pytest
from mhsite.pages import formulas
from mhsite.stories.source import SourceError

README = (formulas.KATEX / "README.md").read_text(encoding="utf-8")
VERSION = re.match(r"# KaTeX (\S+)\n", README)[1]
LISTED = {name: hash_ for hash_, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", README, re.M)}


def test_every_file_of_katex_is_the_one_that_its_readme_lists():
    paths = {path for path in formulas.KATEX.rglob("*") if path.is_file()}
    paths -= {formulas.KATEX / name for name in ("README.md", "render.mjs")}
    found = {
        path.relative_to(formulas.KATEX).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }
    assert found == LISTED
    assert {"LICENSE", "katex.min.css", "katex.min.js"} < LISTED.keys()


def test_the_version_and_every_font_of_the_style_are_there():
    assert f'version:"{VERSION}"' in (formulas.KATEX / "katex.min.js").read_text(encoding="utf-8")
    css = formulas.stylesheet()
    named = set(re.findall(r"url\(fonts/([^)]+)\)", css))
    assert named == formulas.fonts(whole=True).keys()
    assert named == {name.removeprefix("fonts/") for name in LISTED if name.startswith("fonts/")}


def test_a_formula_and_one_that_cannot_be_read():
    html = formulas.render(r"\query{Q} = 1")
    assert '<span class="enclosing mh-query">' in html
    assert "<mi>Q</mi>" in html
    with pytest.raises(SourceError, match=r"Undefined control sequence: \\nosuch"):
        formulas.render(r"\nosuch")


@pytest.mark.nightly
def test_npm_has_the_same_files(tmp_path):
    name = npm_packages.npm("pack", "--silent", f"katex@{VERSION}", cwd=tmp_path).split()[-1]
    archive = tmp_path / name
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert f"sha512-{digest}\n" in README
    with tarfile.open(archive) as files:
        for name, hash_ in LISTED.items():
            place = "package/" if name == "LICENSE" else "package/dist/"
            content = files.extractfile(place + name).read()
            assert hashlib.sha256(content).hexdigest() == hash_, name
