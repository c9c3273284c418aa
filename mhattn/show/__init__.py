"""Pictures and tables of what the other packages compute.

- `tables`: numbers with headings, as text and as Markdown.
- `plots`: maps of attention weights, and the colours that the site uses.
- `fonts`: an installed font for figures with Chinese words.
- `gallery`: all heads of a model as files, ``python -m mhattn.show.gallery``; `gallery_page`: their
  figures and page.

Matplotlib is loaded when something is drawn.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "tables": "table",
    "plots": "COLORS HEAD_COLORS NEGATIVE plot_heads plot_weights",
    "fonts": "use_chinese_font",
    "gallery": "write_gallery",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.show.fonts import *
    from mhattn.show.gallery import *
    from mhattn.show.plots import *
    from mhattn.show.tables import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
