"""In which order stories run, and what the cache says of those that ran."""

import json
import os

import pytest
from mhsite.stories import cache, keys, schedule
from mhsite.stories.frames import frame, size


@pytest.fixture
def stories(tmp_path, monkeypatch):
    """Four stories, of which two have been run: in one second, and in half a minute."""
    monkeypatch.setattr(cache, "HOME", tmp_path / "cache")
    texts = {"short": ">>> 1\n", "long": ">>> 2\n", "trains": ">>> train(9)\n", "plain": ">>> 3\n"}
    found = {}
    for name, text in texts.items():
        found[name] = tmp_path / f"{name}.pycon"
        found[name].write_text(text, encoding="utf-8")
    for name, seconds in {"short": 0.1, "long": 30.0}.items():
        file_result(found[name], {"seconds": seconds})
    return found


def file_result(story, about, place="content/environment", differences="[]"):
    folder = cache.results() / story.stem / place
    folder.mkdir(parents=True)
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "differences.json").write_text(differences, encoding="utf-8")
    cache.sign(folder)
    return folder


def names(paths):
    return [path.stem for path in paths]


def test_the_longest_story_starts_first(stories):
    """By the time that it took; the others by a guess."""
    order = names(schedule.longest_first(stories.values()))
    assert order == ["long", "trains", "short", "plain"]


def test_the_last_time_counts(stories):
    newer = file_result(stories["short"], {"seconds": 60.0}, "other/environment")
    os.utime(newer.parent, (2e9, 2e9))
    assert cache.seconds(stories["short"]) == 60.0
    assert cache.seconds(stories["plain"]) is None


def test_stories_that_somebody_waits_for_come_first(stories):
    run = schedule.Run(list(stories.values()), start="spawn")
    run.first(["plain", "nosuch"])
    assert names(run.todo) == ["plain", "short", "long", "trains"]
    run.add([stories["trains"], stories["short"]])
    assert names(run.todo) == ["trains", "short", "plain", "long"]


def test_a_strict_reader_takes_its_own_results_alone(stories):
    mine = cache.results() / "short" / "content" / "mine"
    assert keys.filed(mine, lenient=False) is None
    assert keys.filed(mine, lenient=True).name == "environment"
    text = "# --8<-- [start:one]\n>>> 1\n1\n# --8<-- [end:one]\n"
    stories["short"].write_text(text, encoding="utf-8")
    file_result(stories["short"], {}, "content/mine", '[["one", 0, "2\\n"]]')
    assert keys.filed(mine, lenient=False) is None
    assert keys.filed(mine, lenient=True) == mine
    (said,) = cache.differences(mine, stories["short"])
    assert said == f"{stories['short']}:2: in section 'one'\n    1\nexpected\n    1\ngot\n    2"


@pytest.mark.parametrize("change", ["damaged", "more", "less"])
def test_a_result_that_is_not_whole_is_none(stories, change):
    folder = file_result(stories["plain"], {})
    if change == "less":
        (folder / "about.json").unlink()
    else:
        name = "about.json" if change == "damaged" else "more.json"
        (folder / name).write_text("{ }", encoding="utf-8")
    assert keys.filed(folder, lenient=True) is None
    assert keys.filed(folder.with_name("other"), lenient=True) is None


def test_a_frame_is_as_large_as_its_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "HOME", tmp_path)
    assert size("nosuch", "picture.svg") == pytest.approx((302.4, 187.2))  # 4.2 x 2.6 inches
    assert '<text x="151.2" y="93.6"' in frame("nosuch", "picture.svg", "en", waits=True)
    drawn = tmp_path / "stories" / "masks" / "old" / "who" / "picture.svg"
    drawn.parent.mkdir(parents=True)
    drawn.write_text('<svg viewBox="0 0 120 60.5"></svg>', encoding="utf-8")
    assert size("masks", "picture.svg") == (120, 60.5)
    assert 'width="174"' in frame("masks", "picture.svg", "en", waits=True)  # as in svg.py
