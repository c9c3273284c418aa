"""The MkDocs hook: what happens when. What is done stands in `mhsite`."""

import shutil
from pathlib import Path
from urllib.parse import urljoin

import mhsite
from mhsite.engines import build, publish, serve, with_mkdocs
from mhsite.pages import chapters, release
from mhsite.pages.page import read
from mhsite.stories import child_processes
from mhsite.stories.source import DOCS
from mkdocs.plugins import CombinedEvent, event_priority

import mhattn as mhattn  # this clone's, while MkDocs has this folder first among its paths


class State:
    command, final, files, site, chinese = "build", None, {}, None, None


def on_startup(command, dirty):
    mhsite.come_first()
    State.command = command
    if command == "build":
        child_processes.end_with_starter()


@event_priority(100)  # before mkdocstrings, which hands the extensions on
def on_config(config):
    language = config.theme["language"]
    if State.command == "serve" and not State.files:
        serve.prepare(*config.dev_addr)
        State.files = serve.files()
        config.site_url = urljoin(config.site_url, "/")  # here it lies at its host's root
    config.extra["search_in_parts"] = True
    config.nav = with_mkdocs.navigation(language)
    config.copyright = release.footer(language)
    config.markdown_extensions.append("mhsite.pages.extension")
    config.mdx_configs["mhsite.pages.extension"] = {"language": language}
    if language == "en" and "one_by_one" not in config.extra:
        build.prepare(serve=State.command == "serve")
        if State.command == "serve":
            config.nav = None
        else:
            State.final = Path(config.site_dir)
            config.site_dir = str(publish.draft(State.final))


def _files(files, config):
    first = State.command == "serve" and "one_by_one" not in config.extra
    if State.final and not State.chinese:  # its folder is empty now, and all stories have run
        State.chinese = with_mkdocs.start_chinese(config)
    (with_mkdocs.nothing if first else with_mkdocs.add_files)(files, config)


# Before mkdocs-jupyter looks for notebooks, and after it.
before = event_priority(100)(_files)
after = event_priority(-100)(with_mkdocs.keep_paths)
on_files = CombinedEvent(before, after)


def on_env(env, config, files):
    # Chinese in data for search engines, as it is: "\\u4e00" would take twice the bytes.
    env.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "sort_keys": True}


def on_page_content(html, page, config, files):
    source = read(DOCS / config.theme["language"] / page.file.src_uri)
    if source.is_notebook:
        html = with_mkdocs.lab(html, page, config)
    if config.theme["language"] == "zh":
        html = with_mkdocs.with_breaks(html)
    page.meta["search"] = {"exclude": True}  # by the theme: we write the index
    page.meta |= {"description": build.description(source), "changed": release.changed(source)}
    if any(block.value == "widget atlas" for block in source.walk()):
        page.meta["dataset"] = "data/atlas"  # of which there is a sheet and a JSON
    page.update_date = page.meta["changed"] or page.update_date  # for the sitemap
    page.meta["hide"] = chapters.hidden(page.file.src_uri)
    return html


def on_post_page(output, page, config):
    output = output.replace('<html lang="zh"', '<html lang="zh-Hans"', 1)  # Material knows zh
    return output if page.file.src_uri.startswith("reference") else with_mkdocs.lighter(output)


def on_post_build(config):
    if State.command == "serve" or "one_by_one" in config.extra:
        return
    build.finish(config.theme["language"], Path(config.site_dir), config.site_url)
    if config.theme["language"] != "en":
        return
    if with_mkdocs.has_no_warning(State.chinese):
        publish.replace(State.final, Path(config.site_dir))
        config.site_dir = str(State.final)


def on_serve(server, config, builder):
    server.mount_path, server.url = "/", config.site_url
    State.site = server.builder = serve.Site(server, config, State.files)
    server.set_app(State.site.serve)
    State.site.start()


def on_shutdown():
    if State.site:
        State.site.end()


def on_build_error(error):
    if State.chinese:
        State.chinese.kill()
        State.chinese.wait()
    if State.final:
        shutil.rmtree(publish.draft(State.final), ignore_errors=True)
