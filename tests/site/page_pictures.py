"""Runs the sections of stories and writes, as JSON, what their pictures show.

A program of its own, which `test_page_pictures.py` starts twice: with matplotlib, and, where the
folder of a page's modules is named, with what stands in for it there. Torch is torch in both.
"""

import json
import sys
from pathlib import Path


def axes_of(ax):
    """What matplotlib's axes hold: points of lines, corners of shapes, texts, limits, labels."""
    own = ax.transData
    lines = [line.get_xydata().tolist() for line in ax.get_lines() if line.get_transform() == own]
    shapes, shades = [], []
    for each in ax.collections:
        kind = type(each).__name__
        if kind == "LineCollection":
            lines += [segment.tolist() for segment in each.get_segments()]
        elif kind == "PolyCollection":
            shades.append([round(alpha, 2) for *_, alpha in each.get_facecolors().tolist()])
    for each in ax.patches:
        if each.get_transform() == own or each.get_data_transform() == own:
            path = each.get_patch_transform().transform_path(each.get_path())
            is_closed = path.codes is not None and path.codes[-1] == path.CLOSEPOLY
            shapes.append(_ends(path.vertices[:-1] if is_closed else path.vertices))
    return {
        "lines": lines,
        "shapes": shapes,
        "shades": shades,
        "texts": [[*map(float, text.get_position()), text.get_text()] for text in ax.texts],
        "limits": [*ax.get_xlim(), *ax.get_ylim()],
        "ticks": [_ticks(axis) for axis in (ax.xaxis, ax.yaxis)] if ax.axison else [[], []],
        "names": [ax.get_title(), ax.get_xlabel(), ax.get_ylabel()],
    }


def _ends(points):
    xs, ys = zip(*((float(x), float(y)) for x, y in points), strict=True)
    return [min(xs), min(ys), max(xs), max(ys)]


def _ticks(axis):
    low, high = sorted(axis.get_view_interval())
    near = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    labels = [(tick.label1, tick.label2) for tick in near]
    return [label.get_text() for pair in labels for label in pair if label.get_visible()]


def drawn_by_matplotlib(section, folder):
    import matplotlib.pyplot as plt
    from mhsite.stories import grids, runner

    figures = [plt.figure(number) for number in plt.get_fignums()]
    for figure in figures:
        figure.canvas.draw()
    axes = [axes_of(ax) for figure in figures for ax in figure.axes]
    tables, maps = grids.described(section.shown, section.names)
    name = runner.save_figure(section.section, folder, maps)
    svg = (folder / name).read_text(encoding="utf-8") if name else ""
    return {"axes": axes, "svg": svg, "tables": tables}


def own_axes_of(ax):
    """The same of the axes of what stands in for matplotlib."""
    from matplotlib._artists import Cells, Line, Shape, Text

    def of(kind):
        return [artist for artist in ax.artists if type(artist) is kind]

    width, height = ax.box[2] - ax.box[0], ax.box[3] - ax.box[1]
    labels = [
        [label for _, label in axis.marked(length)] if axis.named and name not in ax.inner else []
        for axis, length, name in ((ax.x, width, "x"), (ax.y, height, "y"))
    ]
    return {
        "lines": [list(zip(line.xs, line.ys, strict=True)) for line in of(Line)],
        "shapes": [_ends(list(zip(*shape.limits(), strict=True))) for shape in of(Shape)],
        "shades": [
            [round(abs(x) / cells.largest, 2) for row in cells.rows for x in row]
            for cells in of(Cells)
        ],
        "texts": [[text.x, text.y, text.text] for text in of(Text)],
        "limits": [*ax.x.ends, *ax.y.ends],
        "ticks": labels if ax.shown else [[], []],
        "names": [ax.title.text, ax.xaxis.label.text, ax.yaxis.label.text],
    }


def drawn_by_the_page(section):
    import grids
    import matplotlib

    figures = list(matplotlib.figures)
    drawn = grids.taken(section.names) or {"pictures": [], "missing": [], "grids": {}}
    axes = [own_axes_of(ax) for figure in figures for ax in figure.axes]
    svg = "".join(picture["svg"] for picture in drawn["pictures"])
    return {"axes": axes, "svg": svg, "tables": drawn["grids"], "missing": drawn["missing"]}


class Story:
    """A story that runs section by section; ``shown`` gets its tables and maps."""

    def __init__(self, path, shown):
        self.path, self.shown, self.names, self.section = (
            path,
            shown,
            {"__name__": "__main__"},
            None,
        )

    def pictures(self, start, drawn):
        """Of each section that shows a picture or a table, what that is."""
        from mhsite.stories.source import sections

        found = {}
        for section in sections(self.path).values():
            self.section = section
            start()
            for example in section.examples():
                exec(compile(example.source, section.name, "exec"), self.names)
            made = drawn(self)
            if made["axes"] or made["tables"]:
                found[section.name] = made
        return found


def with_matplotlib(folder, stories):
    from mhsite.stories import grids, runner

    runner.prepare(folder / "files")
    for name, path in stories.items():
        with grids.noted() as shown:
            story = Story(path, shown)
            yield (
                name,
                story.pictures(shown.clear, lambda story: drawn_by_matplotlib(story, folder)),
            )


def in_a_page(stories):
    import grids

    for name, path in stories.items():
        yield name, Story(path, grids.shown).pictures(grids.start, drawn_by_the_page)


def main(folder, modules, *names):
    folder = Path(folder)
    stories = {name: Path(__file__).parents[2] / "docs" / name for name in names}
    sys.path[:0] = [modules] if modules else []
    told = dict(in_a_page(stories) if modules else with_matplotlib(folder, stories))
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
