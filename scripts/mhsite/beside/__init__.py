"""What stands beside the pages, made of the same blocks.

- `notebook`: a page as a notebook and as a script.
- `as_markdown`: pages as Markdown, and the lists of them for programs that read.
- `search`: the index of the search field.
- `sharing`: cards, icons and the feed.
- `offline`: the site as a zip that needs no server.
- `wheel`: the package, for pip.
- `books`: the course and each section as EPUB and PDF.
"""
