"""Lines, straight and bent."""

from matplotlib._axis import number

__all__ = ["Path"]


class Path:
    """Points and what leads to each."""

    MOVETO, LINETO, CURVE3, CURVE4, CLOSEPOLY = 1, 2, 3, 4, 79

    def __init__(self, vertices, codes=None):
        self.vertices = [(number(x), number(y)) for x, y in vertices]
        self.codes = codes or [self.MOVETO] + [self.LINETO] * (len(self.vertices) - 1)

    def lines(self):
        """A list for each piece of one kind, as `Canvas.path` takes them."""
        found, at = [], None
        for point, code in zip(self.vertices, self.codes, strict=True):
            kind = {self.CURVE3: "Q", self.CURVE4: "C"}.get(code, "L")
            if code == self.MOVETO:
                at = point
                continue
            if not found or found[-1][0] != kind or found[-1][-1] != at:
                found.append([kind, at])
            found[-1].append(point)
            at = point
        return found
