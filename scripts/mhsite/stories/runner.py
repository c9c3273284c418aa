"""What runs in a story's own process: the code, its figures, its outputs."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import shutil
import tempfile
import traceback
import warnings
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib.pyplot as plt

from mhsite.stories import bilingual, translation
from mhsite.stories.source import Section, SourceError, sections
from mhsite.stories.svg import site_svg

LOOK = {
    "svg.fonttype": "none",
    "figure.figsize": (4.2, 2.6),
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def run(story: Path, folder: Path, device: str, *, heavy: bool = True) -> list[str]:
    """Run a story or lab and write its figures, outputs and differences into ``folder``.

    Labs run with ``device`` as torch's default. Stories print exact numbers that come from
    the CPU's random generator, so they always run there. What a story writes into the folder that
    ``MHATTN_FILES`` names is for its page. Returned are the differences: a text for every example
    of a story that printed something else than its file says. ``heavy``: whether it uses torch.
    """
    prepare(folder / "files", "cpu" if story.suffix == ".pycon" else device, heavy=heavy)
    namespace, outputs, differences, filed = {"__name__": "__main__"}, {}, [], []
    with _noted(heavy) as shown:
        second = translation.catalog_of(story) and bilingual.Second(namespace, folder / "zh", shown)
        for section in sections(story).values():
            if section.is_story:
                printed, wrong = run_story_section(section, namespace, second)
                text = "".join(printed)
                differences += [section.difference(number, printed[number]) for number in wrong]
                filed += [(section.name, number, printed[number]) for number in wrong]
            else:
                text = run_lab_section(section, namespace, second)
            tables, maps = _described(shown, namespace)
            figure = save_figure(section, folder, maps)
            outputs[section.name] = {"text": text, "figure": figure, "grids": tables}
            shown.clear()
            if second:
                _note_chinese(second, section, outputs[section.name])
    write_down(folder, outputs, filed)
    if second:
        second.finish()
        write_down(second.folder, second.outputs, [])
    return differences


def _note_chinese(second: bilingual.Second, section: Section, english: dict) -> None:
    """What a section gave in Chinese; a figure in which nothing differs is the same."""
    with second.speaking():
        tables, maps = _described(second.shown, second.names())
        figure = save_figure(section, second.folder, maps)
        second.shown.clear()
    if not figure and (figure := english["figure"]):
        shutil.copy(second.folder.parent / figure, second.folder / figure)
    text, grids = "".join(second.printed), english["grids"] | tables
    second.outputs[section.name] = {"text": text, "figure": figure, "grids": grids}
    if section.is_story:
        second.outputs[section.name]["printed"] = second.printed


def _noted(heavy: bool) -> AbstractContextManager[list]:
    """The tables and maps that a story shows; without torch `mhsite.stories.grids` finds none."""
    if not heavy:
        return contextlib.nullcontext([])
    from mhsite.stories import grids

    return grids.noted()


def _described(shown: list, namespace: dict) -> tuple[dict[str, str], dict[str, str]]:
    if not shown:
        return {}, {}
    from mhsite.stories import grids

    return grids.described(shown, namespace)


def write_down(folder: Path, outputs: dict, differences: list[tuple[str, int, str]]) -> None:
    """File what was printed and drawn, but no line and no code: both may change, and it stays."""
    for name, content in (("outputs", outputs), ("differences", differences)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def prepare(files: Path, device: str = "cpu", *, heavy: bool = True) -> None:
    """Set what a story may rely on: where it writes, how figures look, how torch computes."""
    files.mkdir()
    os.environ["MHATTN_FILES"] = str(files)
    if heavy:
        from mhsite.stories import with_torch

        with_torch.prepare(device)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="Glyph")  # the browser's fonts have Chinese
    plt.rcdefaults()  # not the style of this machine's matplotlibrc
    plt.rcParams.update(LOOK)
    os.environ["COLUMNS"] = "80"


class _Recorder(doctest.DocTestRunner):
    """Notes what each example printed, and each that printed something else than expected.

    ``second``: who runs an example in Chinese as well.
    """

    def __init__(self, section: Section, second: bilingual.Second | None = None):
        super().__init__(verbose=False, optionflags=0)
        self.section, self.second = section, second
        self.got: dict[int, str] = {}
        self.wrong: list[int] = []

    def report_start(self, out, test, example):
        if self.second:
            self.second.before(example)

    def report_success(self, out, test, example, got):
        self.note(example, got)

    def note(self, example, got):
        self.got[example.lineno] = got
        if self.second:
            self.second.after(example, got)

    def report_failure(self, out, test, example, got):
        self.note(example, got)
        self.wrong.append(test.examples.index(example))

    def report_unexpected_exception(self, out, test, example, exc_info):
        why = "".join(traceback.format_exception_only(exc_info[1]))
        raise SourceError(self.section.message(example, why))


def run_story_section(
    section: Section, namespace: dict, second: bilingual.Second | None = None
) -> tuple[list[str], list[int]]:
    """Run a section of a story: what each example printed, and which did not what its file says."""
    if second:
        second.begin(section, translation.chinese_sections(section.path)[section.name])
    examples = section.examples()
    test = doctest.DocTest(
        examples, namespace, section.name, str(section.path), section.line - 1, section.text
    )
    test.globs = namespace  # DocTest took a copy; sections go on where the one before stopped
    recorder = _Recorder(section, second)
    recorder.run(test, clear_globs=False, out=lambda text: None)
    return [recorder.got[example.lineno] for example in examples], recorder.wrong


def run_lab_section(
    section: Section, namespace: dict, second: bilingual.Second | None = None
) -> str:
    """Run a section of a lab; what it prints."""
    if second:
        second.begin(section, translation.chinese_sections(section.path)[section.name])
    printed = []
    try:
        for example in section.examples():
            if second:
                second.before(example)
            code = "\n" * (section.line - 1 + example.lineno) + example.source
            got = io.StringIO()
            with contextlib.redirect_stdout(got):
                exec(compile(code, str(section.path), "exec"), namespace)
            printed.append(got.getvalue())
            if second:
                second.after(example, printed[-1])
    except SourceError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(section.path)]
        line = lines[-1] if lines else section.line - 1 + getattr(error, "lineno", 1)
        code = section.path.read_text(encoding="utf-8").splitlines()[line - 1]
        why = "".join(traceback.format_exception_only(error))
        why = f"in section {section.name!r}\n    {code.strip()}\n{why}"
        raise SourceError(why, section.path, line) from error
    return "".join(printed)


def save_figure(section: Section, folder: Path, maps: dict[str, str]) -> str | None:
    """Save and close the figure that a section left open; its file's name.

    ``maps`` are the attributes that `mhsite.stories.grids` gives its maps, by their ids.
    """
    numbers = plt.get_fignums()
    if len(numbers) > 1:
        why = f"section {section.name!r} leaves {len(numbers)} figures open; one a section"
        raise SourceError(why, section.path, section.line)
    if not numbers:
        return None
    drawn = io.StringIO()
    with plt.rc_context({"svg.hashsalt": f"{section.path.stem}/{section.name}"}):
        plt.figure(numbers[0]).savefig(
            drawn, format="svg", bbox_inches="tight", pad_inches=0.04, metadata={"Date": None}
        )
    plt.close("all")
    name = f"{section.name}.svg"
    svg = drawn.getvalue()
    if maps:
        from mhsite.stories import grids

        svg = grids.with_maps(svg, maps)
    (folder / name).write_text(site_svg(svg), encoding="utf-8")
    return name


def rewrite(story: Path) -> None:
    """Put what the story prints now in place of what its file says that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        rewrite_in(story, Path(folder, "files"))


def rewrite_in(story: Path, files: Path) -> None:
    prepare(files)
    namespace, lines = {"__name__": "__main__"}, story.read_text(encoding="utf-8").splitlines()
    said = []
    for section in sections(story).values():
        said.append((section, run_story_section(section, namespace)[0]))
        plt.close("all")
    for section, printed in reversed(said):
        start, length = section.line - 1, section.text.count("\n")
        lines[start : start + length] = section.rewritten(printed)[:-1]
    story.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
