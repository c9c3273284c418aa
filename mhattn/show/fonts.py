"""A font with Chinese letters for figures: matplotlib's own has none, and draws boxes instead."""

from matplotlib import font_manager, rcParams

__all__ = ["use_chinese_font"]

# What systems bring along, or a package of theirs: Linux, Windows, macOS. Sans-serif ones first.
KNOWN = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # Debian's package lists its one file of all languages under this name
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Heiti TC",
    "STHeiti",
    "Arial Unicode MS",
    "Noto Serif CJK SC",
    "SimSun",
)
MISSING = (
    "没有找到中文字体，图中的汉字会显示为方框。"
    "安装一种，再重新启动 Python（笔记本请重启内核）即可：\n"
    "  Debian、Ubuntu、Colab：apt-get install -y fonts-noto-cjk\n"
    "  Fedora：dnf install google-noto-sans-cjk-fonts"
)


def use_chinese_font() -> str | None:
    """Let figures take Chinese letters from an installed font, all others as before.

    It adds the font behind those that ``rcParams["font.family"]`` names, so only letters that
    these lack are drawn with it. Chinese notebooks and scripts of the site call it before they
    draw. If no font is found, one message in Chinese says how to get one.

    Returns:
        The name of the font, or None if there is none.

    Examples:
        >>> import matplotlib
        >>> before = matplotlib.rcParams["font.family"]
        >>> font = use_chinese_font()
        >>> font is None or font == matplotlib.rcParams["font.family"][-1]
        True
        >>> matplotlib.rcParams["font.family"] = before
    """
    name = installed_font()
    if name is None:
        _tell_once()
        return None
    family = list(rcParams["font.family"])
    if name not in family:
        rcParams["font.family"] = [*family, name]
    return name


def installed_font() -> str | None:
    """The first of the known Chinese fonts that is installed here."""
    if name := _first_known():
        return name
    # The list of fonts is a file that outlives the process: a font may have come since.
    listed = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in set(font_manager.findSystemFonts()) - listed:
        try:
            font_manager.fontManager.addfont(path)
        except (OSError, RuntimeError):  # FreeType cannot read it
            continue
    return _first_known()


def _first_known() -> str | None:
    names = {entry.name for entry in font_manager.fontManager.ttflist}
    return next((name for name in KNOWN if name in names), None)


_told = False


def _tell_once() -> None:
    global _told
    if not _told:
        print(MISSING)
    _told = True
