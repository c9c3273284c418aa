"""What stories trained beforehand, docs/data/runs/<story>.json: see `measuring.runs`.

Beside it, <story>-<function>.pt has the weights of models that later sections need.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path

from mhsite.stories import fingerprints
from mhsite.stories.source import DOCS, STORIES, SourceError, sections, told_in

FOLDER = DOCS / "data" / "runs"
# By the name of the function's argument: called once, called several times, called every night.
CALLS = {
    "en": {
        "seed": ("Run beforehand", "Run beforehand with {} seeds", "the code again with one seed"),
        "part": ("Run beforehand", "Run beforehand in {} parts", "one of the parts again"),
    },
    "zh": {
        "seed": ("预先运行一次", "用 {} 个随机种子预先运行", "用一个种子重新运行代码"),
        "part": ("预先运行一次", "分 {} 个部分预先运行", "重新运行其中一个部分"),
    },
}
ORIGIN = {
    "en": "{times} ({date}, Python {python}, torch {torch}, {device}). Building this page only "
    "reads the results; every night a test runs {again}, and compares. ",
    "zh": "{times}（{date}，Python {python}，torch {torch}，{device}）。构建本页只读取这些结果；"
    "每晚的测试会{again}，并与结果比对。",
}
LINKS = {
    "en": ("[All numbers]({})", " [All weights]({})"),
    "zh": ("[全部数据]({})", "[全部参数]({})"),
}
STALE = {
    "en": " **The code has changed since these runs.**",
    "zh": "**这些结果得出之后，代码又有改动。**",
}


def path_of(story: str) -> Path:
    return FOLDER / f"{story}.json"


def weights_path(story: str, name: str) -> Path:
    """Where the weights lie that a function of a story trained, if they are filed."""
    return FOLDER / f"{story}-{name}.pt"


def filed(story: str) -> dict[str, dict]:
    """What is filed for a story: of each function its seeds, where it ran, code and values."""
    path = path_of(story)
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else {}


def published() -> dict[str, Path]:
    """All files under their addresses."""
    files = [*FOLDER.glob("*.json"), *FOLDER.glob("*.pt")]
    return {f"data/runs/{path.name}": path for path in sorted(files)}


def text(story: str) -> str:
    """A story's code, all sections."""
    path = STORIES / f"{story}.pycon"
    if not path.is_file():
        raise SourceError(f"there is no story {path}")
    return "\n".join(section.code for section in sections(path).values())


def code(story: str, name: str, seeds: bool = True) -> str:
    """What has to run before a function of a story can be called."""
    try:
        statements = fingerprints.needed(text(story), name, seeds=seeds)
    except KeyError:
        path = STORIES / f"{story}.pycon"
        raise SourceError(f"nothing defines {name} in this story", path) from None
    return "\n".join(ast.unparse(node) for node in statements)


def fingerprint(story: str, name: str, seeds: bool = True) -> str:
    return fingerprints.fingerprint(text(story), name, seeds=seeds)


def ran_with_seeds(story: str, name: str) -> bool | None:
    """Whether today's code ran with the seeds that stand before it; None if it is another code.

    Runs that were filed before seeds were taken along ran without them.
    """
    code = filed(story)[name]["code"]
    return next((w for w in (False, True) if code == fingerprint(story, name, w)), None)


def is_stale(story: str, name: str) -> bool:
    """Whether the code is another than that which ran."""
    return ran_with_seeds(story, name) is None


def write(story: str, found: dict[str, dict]) -> Path:
    """One seed a line; the file appears whole or not at all."""
    told = [_told(name, run) for name, run in sorted(found.items())]
    whole = '{\n  "runs": {\n' + ",\n".join(told) + "\n  }\n}\n"
    return write_bytes(path_of(story), whole.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{path.stem}.{os.getpid()}"
    draft.write_bytes(content)
    return draft.replace(path)


def _told(name: str, run: dict) -> str:
    head = [f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in run.items() if k != "values"]
    values = ",\n        ".join(json.dumps(each) for each in run["values"])
    lines = ",\n".join([*head, f'      "values": [\n        {values}\n      ]'])
    return f"    {json.dumps(name)}: {{\n{lines}\n    }}"


def _argument(story: str, name: str) -> str:
    """What the function calls its argument: a seed, or a part of the work."""
    functions = [n for n in ast.walk(ast.parse(text(story))) if isinstance(n, ast.FunctionDef)]
    named = [n.args.args[0].arg for n in functions if n.name == name and n.args.args]
    if not named or named[-1] not in CALLS["en"]:
        why = f"the first argument of {name} must be called {' or '.join(CALLS['en'])}"
        raise SourceError(why, STORIES / f"{story}.pycon")
    return named[-1]


def markdown(asked: str, language: str, url: Callable[[str], str]) -> str:
    """``<!-- runs STORY:NAME -->``: what its numbers were made with.

    On a Chinese page those of the Chinese story, if it is one with other data.
    """
    story, _, name = asked.partition(":")
    twin = told_in(language, story)
    story = twin if path_of(twin).is_file() else story
    if name not in (found := filed(story)):
        raise SourceError(f"there is no {name!r} in docs/data/runs/{story}.json")
    run, (numbers, weights) = found[name], LINKS[language]
    once, several, again = CALLS[language][_argument(story, name)]
    times = once if run["seeds"] == 1 else several.format(run["seeds"])
    origin = ORIGIN[language].format(**run | {"times": times, "again": again})
    origin += numbers.format(url(f"data/runs/{path_of(story).name}"))
    if "weights" in run:
        origin += weights.format(url(f"data/runs/{run['weights']['file']}"))
    return origin + STALE[language] * is_stale(story, name) + "\n{ .mh-measured }"
