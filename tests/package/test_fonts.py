"""An installed Chinese font is found, also one that came late; if there is none, one message."""

import warnings

import pytest
from matplotlib import font_manager, pyplot as plt, rcParams

from mhattn.show import fonts, use_chinese_font


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(fonts, "_told", False)
    with plt.rc_context():
        yield


def test_chinese_is_drawn_without_boxes():
    if use_chinese_font() is None:
        pytest.skip("no Chinese font is installed")
    figure = plt.figure()
    figure.text(0.5, 0.5, "注意力 weights √−")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()


def test_the_reader_s_own_fonts_come_first(monkeypatch):
    monkeypatch.setattr(fonts, "installed_font", lambda: "SimHei")
    rcParams["font.family"] = ["serif"]
    assert [use_chinese_font(), use_chinese_font()] == ["SimHei"] * 2
    assert rcParams["font.family"] == ["serif", "SimHei"]


def test_without_a_font_one_message_says_how_to_get_one(monkeypatch, capsys):
    monkeypatch.setattr(fonts, "installed_font", lambda: None)
    before = list(rcParams["font.family"])
    assert [use_chinese_font(), use_chinese_font()] == [None, None]
    assert capsys.readouterr().out == fonts.MISSING + "\n"
    assert rcParams["font.family"] == before


def test_a_font_that_came_after_the_list_was_made_is_found(monkeypatch):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/no/such.ttf", *DEJAVU])
    monkeypatch.setattr(fonts, "KNOWN", ("No Such Font", "DejaVu Sans Mono"))
    assert fonts.installed_font() == "DejaVu Sans Mono"


DEJAVU = [entry.fname for entry in font_manager.fontManager.ttflist if "DejaVu" in entry.name]
