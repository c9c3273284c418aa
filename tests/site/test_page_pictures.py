"""What a page draws by itself shows what matplotlib's figure shows: the same points, texts and
limits, in the same places.
"""

import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from mhsite.pages import running
from mhsite.stories.source import ROOT

PROGRAM = Path(__file__).with_name("page_pictures.py")
QUICK = [
    f"stories/{name}.pycon"
    for name in ("why-attention", "attention", "masks", "why-heads", "multi-head", "shapes")
] + ["stories/by-hand.pycon"]
FAR = 6  # points that a text of a picture with axes may stand elsewhere: nobody measures letters


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A page's modules without its torch."""
    folder = tmp_path_factory.mktemp("modules")
    with tarfile.open(fileobj=io.BytesIO(running.modules())) as archive:
        archive.extractall(folder, filter="data")
    shutil.rmtree(folder / "torch")
    return folder


def told(folder, modules, stories):
    """What pictures show, drawn by matplotlib, or by what stands in a folder of modules."""
    folder.mkdir()
    path = [str(ROOT), str(ROOT / "scripts")]
    paths = os.pathsep.join([str(modules), *path] if modules else path)
    settings = {"PYTHONPATH": paths, "MHATTN_FILES": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(modules or ""), *stories],
        check=True,
        env=os.environ | settings,
    )
    return json.loads((folder / "told.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def both(tmp_path_factory, modules):
    folder = tmp_path_factory.mktemp("pictures")
    return told(folder / "right", None, QUICK), told(folder / "found", modules, QUICK)


def close(right, found):
    """The same, where numbers may differ by rounding."""
    if isinstance(right, list | tuple):
        return len(right) == len(found) and all(map(close, right, found))
    if isinstance(right, dict):
        return right.keys() == found.keys() and all(close(right[k], found[k]) for k in right)
    if isinstance(right, str | bool | None):
        return right == found
    return math.isclose(right, found, rel_tol=1e-4, abs_tol=1e-4)


def ordered(axes):
    """Without the order in which one picture has its lines, shapes and texts."""
    rounded = json.loads(json.dumps(axes), parse_float=lambda number: round(float(number), 4))
    mixed = ("lines", "shapes", "texts")
    return [{k: sorted(v, key=str) if k in mixed else v for k, v in ax.items()} for ax in rounded]


def texts(svg):
    """Each line of a picture, without its spaces, and where it stands."""
    found = []
    for text in ElementTree.fromstring(svg).iter():
        if text.tag.rpartition("}")[2] != "text":
            continue
        words = re.sub(r"\s", "", unescape("".join(text.itertext())))
        moved = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform", ""))
        x, y = moved.groups() if moved else (text.get("x"), text.get("y"))
        if words:
            side = re.search(r"text-anchor: (\w+)", text.get("style", ""))
            found.append((words, x and float(x), y and float(y), side and side[1]))
    return found


def compared(right, found):
    for name, story in right.items():
        assert story.keys() == found[name].keys()
        for section, expected in story.items():
            same(f"{name}:{section}", expected, found[name][section])


def same(name, right, found):
    assert found["missing"] == [], name
    assert len(right["axes"]) == len(found["axes"]), name
    for ax, own in zip(ordered(right["axes"]), ordered(found["axes"]), strict=True):
        for kind, expected in ax.items():
            assert close(expected, own[kind]), (name, kind, expected, own[kind])
    assert right["tables"].keys() == found["tables"].keys()
    for text, attribute in right["tables"].items():
        about = json.loads(unescape(re.fullmatch(r" data-grid='(.*)'", attribute)[1]))
        assert close(about, found["tables"][text]), name
    if right["svg"]:
        assert sorted(each[0] for each in texts(right["svg"])) == sorted(
            each[0] for each in texts(found["svg"])
        ), name
        maps = [re.findall(r'data-grid="([^"]*)"', each["svg"]) for each in (right, found)]
        maps = [[json.loads(unescape(each)) for each in side] for side in maps]
        assert close(*maps), name


def test_pictures_show_the_same_numbers_and_words(both):
    right, found = both
    compared(right, found)
    shown = [section for story in right.values() for section in story.values()]
    assert sum(bool(section["svg"]) for section in shown) >= 15
    assert sum(len(section["tables"]) for section in shown) >= 5


def places(svg):
    """Where texts begin, end or have their middle; nobody says that of formulas."""
    return {
        (words, n): (x, y)
        for words, same in grouped(texts(svg)).items()
        for n, (_, x, y, _) in enumerate(sorted(same, key=lambda each: each[1:3]))
        if x is not None
    }


def grouped(found):
    made = {}
    for each in found:
        if each[1] is not None:
            made.setdefault((each[0], each[3]), []).append(each)
    return made


def test_texts_stand_where_matplotlib_puts_them(both):
    """But for where the picture as a whole begins, which depends on how long texts are."""
    right, found = both
    for name, story in right.items():
        for section, expected in story.items():
            if not expected["svg"]:
                continue
            far = moved(expected["svg"], found[name][section]["svg"])
            assert len(far) >= 3, (name, section)
            assert max(far.values()) < FAR, (name, section, far)


def moved(right, found):
    """How far each text stands from its place, where all as a whole may be elsewhere."""
    one, other = places(right), places(found)
    away = {k: [a - b for a, b in zip(one[k], other[k], strict=True)] for k in one if k in other}
    middle = [sorted(side)[len(side) // 2] for side in zip(*away.values(), strict=True)]
    return {k: math.dist(each, middle) for k, each in away.items()}


def drawn(modules, code):
    """What a page says of the pictures of some code."""
    program = f"import grids, json\ngrids.start()\nnames = {{}}\nexec({code!r}, names)\n"
    program += "print(json.dumps(grids.taken(names)))"
    settings = {"PYTHONPATH": os.pathsep.join([str(modules), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=os.environ | settings,
        capture_output=True,
        encoding="utf-8",
    )
    return json.loads(done.stdout)


def test_what_is_not_drawn_is_named_and_the_rest_drawn(modules):
    code = "import matplotlib.pyplot as plt\nfigure, ax = plt.subplots()\n"
    whole = drawn(modules, code + "ax.plot([1, 2, 4])")
    assert whole["missing"] == []
    less = drawn(modules, code + "ax.plot([1, 2, 4])\nax.contour([[1, 2], [3, 4]])\nplt.hist([1])")
    assert less["missing"] == ["ax.contour", "plt.hist"]
    assert less["pictures"] == whole["pictures"]


def test_what_cannot_be_drawn_stops_no_cell(modules):
    code = "import matplotlib.pyplot as plt\nfigure, ax = plt.subplots()\n"
    told = drawn(modules, code + "ax.text(0, 0, 'here', fontsize='enormous')")
    assert told["pictures"] == []
    assert "enormous" in told["missing"][0]


def test_who_draws_nothing_has_no_picture(modules):
    assert drawn(modules, "print") is None
