"""The MkDocs hook: what happens when. What is done stands in `mhsite`."""

import shutil
from pathlib import Path

from mhsite import build, pieces, publish, with_mkdocs
from mhsite.settings import settings
from mkdocs.plugins import CombinedEvent, event_priority


class State:
    command, final = "build", None


def on_startup(command, dirty):
    State.command = command


def on_config(config):
    config.nav = settings(config.theme["language"])["nav"]
    if config.theme["language"] == "en":
        build.prepare(lenient=State.command == "serve")
        if State.command != "serve":
            State.final = Path(config.site_dir)
            config.site_dir = str(publish.draft(State.final))


def add_files(files, config):
    made = build.files(config.theme["language"], config.site_url)
    labs = with_mkdocs.notebooks(config.theme["language"], made)
    with_mkdocs.add(made | labs, files, config)


# Before mkdocs-jupyter looks for notebooks, and after it.
after = event_priority(-100)(with_mkdocs.keep_paths)
on_files = CombinedEvent(event_priority(100)(add_files), after)


def on_page_content(html, page, config, files):
    if page.file.src_uri.startswith("labs/"):
        html = with_mkdocs.lab(html, page, config)
    page.meta.setdefault("description", pieces.summary(html))
    return html


def on_post_build(config):
    build.finish(Path(config.site_dir))
    if config.theme["language"] != "en":
        return
    if with_mkdocs.build_chinese(config, State.command) and State.final:
        publish.replace(State.final, Path(config.site_dir))
        config.site_dir = str(State.final)


def on_build_error(error):
    if State.final:
        shutil.rmtree(publish.draft(State.final), ignore_errors=True)
