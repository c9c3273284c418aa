"""Letters of figures on a phone: small ones grow a little, or the figure is wide and scrolls."""

from __future__ import annotations

import math
import re

LEAST = 9.05  # CSS pixels of the smallest letters, at 360 px
PHONE = 328  # CSS pixels that a figure has there
GROWTH = 1.16  # of letters; what stands beside them has room for no more

TEXT = re.compile(r"<text\b([^>]*)>(.*?)</text>", re.S)
SHARE = re.compile(r"font-size: ([\d.]+)em")
ROOT = re.compile(r'<svg\b[^>]*? width="(\d+)" viewBox="0 0 ([\d.]+)[^>]*? font-size="(\d+)"')


def readable(svg: str) -> str:
    """The figure with letters that can be read at 360 px, inside of what scrolls if it must."""
    if not (root := ROOT.search(svg)):
        return svg
    shown, width, size = min(int(root[1]), PHONE), float(root[2]), int(root[3])
    shares = [_share(*text.groups()) for text in TEXT.finditer(svg) if text[2].strip()]
    if not shares or min(shares) >= (wanted := LEAST * width / (shown * size)):
        return svg
    if wanted <= min(shares) * GROWTH:
        return TEXT.sub(lambda text: _grown(text, wanted), svg)
    need = math.ceil(shown * wanted / min(shares))
    return f'<span class="mh-scroll mh-wide" tabindex="0" style="--mh-need: {need}px">{svg}</span>'


def _share(attributes: str, inside: str) -> float:
    """The size of a text's largest letters, in that of the figure; indices are smaller."""
    own = SHARE.search(attributes)
    runs = [SHARE.search(run) for run in re.findall(r"<tspan\b[^>]*>", inside)]
    largest = max((float(run[1]) if run else 1.0 for run in runs), default=1.0)
    return largest * (float(own[1]) if own else 1.0)


def _grown(text: re.Match, least: float) -> str:
    """The text in letters of at least this size; runs have their places in sizes of theirs."""
    attributes, inside = text.groups()
    if (share := _share(attributes, inside)) >= least:
        return text[0]
    own = SHARE.search(attributes)
    size = f"font-size: {(float(own[1]) if own else 1.0) * least / share:.3g}em"
    if own:
        attributes = SHARE.sub(size, attributes)
    elif 'style="' in attributes:
        attributes = attributes.replace('style="', f'style="{size}; ', 1)
    else:
        attributes += f' style="{size}"'
    return f"<text{attributes}>{inside}</text>"
