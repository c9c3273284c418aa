"""Stories: what they are, what they gave, and when they must run again.

- `source`: the named sections of files that pages show, and the code in them.
- `translation`: a story's code in Chinese, from the catalog beside it; `bilingual` runs both.
- `schedule`: which stories run, and in which order; `story_process`: the process of one of them;
  `runner`: what runs in it; `with_torch`: what it needs of torch.
- `child_processes`: commands that end with the process that started them.
- `keys`: what a result depends on, and so where `cache` files it; `results` reads it.
- `meaning`: what of a story's or a module's text can change a result.
- `grids`: the queries and keys of the tables and maps that a story shows.
- `svg`: figures as pages show them; `frames`: what stands there until one is drawn.
- `models`: the trained models that stories read.
- `fingerprints`: the code behind one name, and its hash.
- `as_filed`: functions as they were when runs were filed, and that give the same today.
"""
