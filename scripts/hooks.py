"""The MkDocs hook: what happens when. What is done stands in `mhsite`."""

import shutil
from pathlib import Path

from mhsite import build, pieces, publish, serve, with_mkdocs
from mkdocs.plugins import CombinedEvent, event_priority


class State:
    command, final, files = "build", None, {}


def on_startup(command, dirty):
    State.command, State.files = command, serve.files()


def on_config(config):
    config.extra["search_in_parts"] = True
    config.nav = with_mkdocs.navigation(config.theme["language"])
    if config.theme["language"] == "en":
        build.prepare(lenient=State.command == "serve")
        if State.command != "serve":
            State.final = Path(config.site_dir)
            config.site_dir = str(publish.draft(State.final))


# Before mkdocs-jupyter looks for notebooks, and after it.
before = event_priority(100)(with_mkdocs.add_files)
after = event_priority(-100)(with_mkdocs.keep_paths)
on_files = CombinedEvent(before, after)


def on_page_content(html, page, config, files):
    if page.file.src_uri.startswith("labs/"):
        html = with_mkdocs.lab(html, page, config)
    page.meta["search"] = {"exclude": True}  # by the theme: we write the index
    page.meta.setdefault("description", pieces.summary(html))
    return html


def on_post_build(config):
    build.finish(config.theme["language"], Path(config.site_dir))
    if config.theme["language"] != "en" or "only_pages" in config.extra:
        return
    if with_mkdocs.build_chinese(config, State.command) and State.final:
        publish.replace(State.final, Path(config.site_dir))
        config.site_dir = str(State.final)


def on_serve(server, config, builder):
    server.builder = serve.Builder(config, builder, State.files)


def on_build_error(error):
    if State.final:
        shutil.rmtree(publish.draft(State.final), ignore_errors=True)
