"""What a page says on top of how its stories ran here; on a published site nothing."""

from __future__ import annotations

from html import escape

from mhsite.pages.page import Page
from mhsite.stories import cache, results
from mhsite.stories.source import STORIES, SourceError, told_in

COMPUTING = {
    "en": "This machine is computing the numbers and figures of this page. Until it is done, "
    "outputs are those that the page's file expects. Done: {} stories.",
    "zh": "本机正在计算这一页的数字和图。算完之前，输出是文件中写好的预期结果。已算完：{} 页。",
}
FAILED = {
    "en": "The code of this page failed here. Outputs are those that its file expects, and figures "
    "are missing.",
    "zh": "这一页的代码在本机运行失败：显示的输出是文件中写好的预期结果，图也缺失。",
}
DIFFERS = {
    "en": "On this machine the code prints something else than this page says.",
    "zh": "在本机上，代码打印的结果与这一页所写的不同。",
}
STOPPED = {
    "en": "The numbers and figures of this page will not come: this machine has stopped computing. "
    "Outputs are those that the page's file expects, and figures are missing. {cure}",
    "zh": "这一页的数字和图不会出现：本机已停止计算。"
    "显示的输出是文件中写好的预期结果，图也缺失。{cure}",
}
CURES = {
    cache.CannotWrite: {
        "en": "Set the variable MHATTN_CACHE to a folder that can be written, and start "
        "mkdocs serve again.",
        "zh": "请把环境变量 MHATTN_CACHE 设为一个可写的文件夹，再重新运行 mkdocs serve。",
    },
    Exception: {
        "en": "Start mkdocs serve again; if the same happens, please report the error below.",
        "zh": "请重新运行 mkdocs serve；如果再次出现，请把下面的错误信息反馈给我们。",
    },
}
ELSEWHERE = {"en": "Computed with {}.", "zh": "计算环境：{}。"}
# The number is of when the page was built; `engines.serve` writes the newest one beside the site.
COUNT = """<script>(async function count() {
  const answer = await fetch("FILE").catch(() => null)
  if (answer?.ok) document.querySelector(".mh-done").textContent = await answer.text()
  setTimeout(count, 3000)
})()</script>"""
WHO = "Python {Python}, torch {torch} on {system} {machine}"


def of(page: Page, file: str) -> str:
    """The notices of a page, the worst first; at ``file`` stands how many stories are done."""
    names = stories(page)
    failed = [text for name in names if (text := results.failure(name))]
    differ = [text for name in names for text in results.differences(name)]
    found = _warning(FAILED[page.language], failed) + _warning(DIFFERS[page.language], differ)
    if any(results.is_missing(name) and not results.failure(name) for name in names):
        if why := results.stopped():
            text = STOPPED[page.language].format(cure=cure(why, page.language))
            return found + _warning(text, [reason(why)])
        found += _note(COMPUTING[page.language].format(progress()))
        found += COUNT.replace("FILE", file)
    others = {WHO.format(**who) for name in names if (who := results.elsewhere(name))}
    return found + "".join(_note(ELSEWHERE[page.language].format(who)) for who in sorted(others))


def reason(why: Exception) -> str:
    """An error in one line: where and what of one that we raise, the kind of any other."""
    return str(why.message) if isinstance(why, SourceError) else repr(why)


def cure(why: Exception, language: str) -> str:
    """What a reader can do so that stories are run again."""
    kind = next(kind for kind in CURES if isinstance(why, kind))
    return CURES[kind][language]


def progress() -> str:
    """How many stories are done."""
    return '<span class="mh-done">{} / {}</span>'.format(*results.done())


def stories(page: Page) -> list[str]:
    """The stories and labs that a page shows something of."""
    names = dict.fromkeys(
        block.section.path.stem for block in page.walk() if block.kind == "include"
    )
    for block in page.walk():
        if block.kind == "figure" and block.value.startswith(("figures/", "../figures/")):
            name = block.value.split("figures/")[-1].split("/")[0]
            told = told_in(page.language, name)
            names[told if (STORIES / f"{told}.pycon").is_file() else name] = None
    return [name for name in names if results.is_known(name)]


def _warning(text: str, details: list[str]) -> str:
    if not details:
        return ""
    said = escape("\n\n".join(details), quote=False)
    return f'<div class="admonition warning"><p>{text}</p><pre>{said}</pre></div>'


def _note(text: str) -> str:
    return f'<div class="admonition note"><p>{text}</p></div>'
