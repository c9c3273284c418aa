"""Build the site with Zensical. It runs no hooks: what the hook does is done before it starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from mhsite.engines import build, publish
from mhsite.pages import chapters, release
from mhsite.pages.settings import settings
from mhsite.stories import child_processes
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, SourceError

# What Zensical isn't told: it runs no hooks, nothing is watched here, and `settings` has resolved
# what is inherited. It stops at every broken link, whatever mkdocs.yml says of validation.
LEFT_OUT = ("hooks", "watch", "INHERIT", "validation")


def build_site(site: Path) -> None:
    """Build both languages, and put them where ``site`` is."""
    build.prepare()
    draft = publish.draft(site)
    with TemporaryDirectory(prefix="mhattn-") as folder:
        for language in LANGUAGES:
            built = build_language(language, Path(folder, language))
            below = "" if language == "en" else f"{language}/"
            shutil.copytree(built, draft / below)
            build.write_markdown(language, draft / below, settings()["site_url"] + below)
    publish.replace(site, draft)


def build_language(language: str, folder: Path) -> Path:
    """Where a language's site lies, after building it in a folder that is not there yet."""
    stage(language, folder)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "-f", str(folder / "mkdocs.yml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    if done.returncode:
        raise SourceError(done.stdout)
    return folder / "site"


def stage(language: str, folder: Path) -> None:
    """Put all that a language's site is made of into ``folder``, as Zensical wants to find it."""
    chosen = {name: value for name, value in settings(language).items() if name not in LEFT_OUT}
    home = chosen["site_url"] + ("" if language == "en" else f"{language}/")
    chosen |= {"site_url": home, "docs_dir": "docs", "site_dir": "site"}
    chosen["copyright"] = release.footer(language)
    ours = {"language": language, "links": "source"}
    chosen["markdown_extensions"]["mhsite.pages.extension"] = ours
    chosen["theme"]["custom_dir"] = "theme"
    chosen["plugins"].pop("mkdocs-jupyter")  # labs are pages like the others
    chosen["plugins"]["mkdocstrings"]["locale"] = language
    chosen["plugins"]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    shutil.copytree(DOCS / "theme", folder / "theme")
    files = build.files(language, home)
    for page in build.pages(language):
        said = {"description": build.description(page), "changed": release.changed(page)}
        said["hide"] = chapters.hidden(page.name)
        about = yaml.safe_dump(said, allow_unicode=True)
        files[page.name] = f"---\n{about}---\n{page.path.read_text(encoding='utf-8')}"
    for name, content in files.items():
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            content = content.read_bytes()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = yaml.safe_dump(chosen, allow_unicode=True, sort_keys=False)
    (folder / "mkdocs.yml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    child_processes.end_with_starter()
    try:
        build_site(Path(sys.argv[1]).resolve())
    except SourceError as error:
        sys.exit(error.message)
