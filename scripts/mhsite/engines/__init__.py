"""Who renders the pages, and when.

- `build`: what is done around them, whichever engine it is; `publish`: the site appears whole.
- `with_mkdocs`: what MkDocs alone needs; `labs`: what mkdocs-jupyter renders for it.
- `serve`: what `mkdocs serve` shows while stories run; `page_renderer`: a page at a time for it.
- `with_zensical`: the same site by MkDocs's successor.
"""
