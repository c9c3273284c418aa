"""Pages: what stands in their Markdown, and the HTML that it becomes.

- `page`: a page, parsed once into blocks and spans; `settings`: what mkdocs.yml says, and
  TOML files.
- `extension`: the Python-Markdown extension that replaces each block by its HTML.
- `cells`: code with what it printed; `fragments`: figures, widgets, what a page offers; `formulas`:
  mathematics by KaTeX; `phone_figures`: letters of figures on a phone.
- `navigation`: the order and titles of pages, and addresses that they had; `link_targets`: what a
  link can lead to.
- `tables`: which table a comment asks for: `bibliography`, `glossary`, `known_models`, `measured`
  (of measurements, with `devices` beside each other), `runs` (what was trained beforehand).
- `chapters`: the road and its cards; `links`: which pages show a function; `api`: the reference,
  `chinese_api`: its docstrings in Chinese.
- `claims`: the conclusions of the pages, what they stand on and what became of them.
- `museum`: every silent mistake of the pages; `traps` reads them; `exhibits`: forty, by what one
  sees.
- `running`: the keys that run cells in the page, and the files of Python that they load.
- `model_parts`: the language model that a page loads; `from_npm`: files of npm's packages.
- `your_turn`: the reader's own cell of a task, before its solution.
- `atlas`: what is drawn of each model, and the table of those that have a row by their class;
  `timeline`: when they were first published, and of which kind they are.
- `calculator`: its form, and the known models for its script.
- `notices`: how the stories ran here; `release`: which state of the project a site is.
"""
