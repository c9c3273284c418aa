"""What stands beside the pages, made of the same blocks.

- `notebook`: a page as a notebook and as a script.
- `search`: the index of the search field.
- `sharing`: cards, icons and the feed.
- `offline`: the site as a zip that needs no server.
"""
