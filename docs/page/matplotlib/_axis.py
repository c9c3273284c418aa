"""One axis: from numbers to shares of its length, and its ticks."""

import math

STEPS = 1, 2, 2.5, 5, 10


def number(value):
    """A float, of a number or a tensor with one."""
    return float(value.item() if hasattr(value, "item") else value)


def numbers(values):
    """Floats in a list, of a tensor, a list or one number."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not hasattr(values, "__iter__"):
        return [number(values)]
    return [number(each) for each in values]


class Axis:
    """Limits, scale and ticks; `place` says where a number stands, from 0 to 1."""

    def __init__(self, name):
        self.is_x = name == "x"
        self.low = self.high = None  # where they were set
        self.inverted = False
        self.scale, self.linthresh = "linear", 2.0
        self.ticks = self.labels = None
        self.tick_size, self.pad, self.length, self.turn = 10.0, 3.5, 3.5, 0
        self.far, self.named = False, True  # at the top or at the right; with labels
        self.names, self.sticky = [], set()  # of categories; where bars begin

    def forward(self, value):
        """On a scale where equal steps are equally long."""
        if self.scale == "log":
            return math.log10(value) if value > 0 else -300.0
        if self.scale == "symlog":
            size = abs(value) / self.linthresh
            size = size / 0.9 if size <= 1 else 1 / 0.9 + math.log10(size)
            return math.copysign(size, value)
        return value

    def backward(self, value):
        if self.scale == "log":
            return 10**value
        if self.scale == "symlog":
            size = abs(value)
            size = size * 0.9 if size <= 1 / 0.9 else 10 ** (size - 1 / 0.9)
            return math.copysign(size * self.linthresh, value)
        return value

    def settle(self, values):
        """Find the limits that nobody set: those of what is drawn, and a little more."""
        values = [x for x in values if math.isfinite(x) and (x > 0 or self.scale != "log")]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        start, end = self.forward(low), self.forward(high)
        if start == end:
            start, end = (start - 0.05 * abs(start or 1), end + 0.05 * abs(end or 1))
        more = 0.05 * (end - start)
        low = low if low in self.sticky and values else self.backward(start - more)
        high = high if high in self.sticky and values else self.backward(end + more)
        low = low if self.low is None else self.low
        high = high if self.high is None else self.high
        self.ends = (high, low) if self.inverted else (low, high)

    def place(self, value):
        start, end = map(self.forward, self.ends)
        return (self.forward(value) - start) / (end - start or 1)

    def marked(self, points):
        """Ticks within the limits and their labels, on an axis of so many points."""
        ticks, labels = self.ticks, self.labels
        if ticks is None and self.names:
            ticks, labels = range(len(self.names)), self.names
        if ticks is None:
            ticks = self._decades() if self.scale != "linear" else self._round(points)
        if labels is None:
            labels = self._written(list(ticks))
        there = zip(ticks, labels, strict=False)
        return [(x, str(label)) for x, label in there if -1e-6 <= self.place(x) <= 1 + 1e-6]

    def _decades(self):
        low, high = sorted(self.ends)
        powers = range(-12, 13)
        found = [10.0**n for n in powers if low <= 10.0**n <= high]
        return found if self.scale == "log" else [0.0, *(x for x in found if x >= self.linthresh)]

    def _round(self, points):
        """Round numbers, at most ten, and no more than there is room for; but two of them."""
        low, high = sorted(self.ends)
        most = max(1, min(9, int(points / (self.tick_size * (3 if self.is_x else 2)))))
        raw = (high - low) / most
        power = 10.0 ** math.floor(math.log10(raw))
        steps = [n * power for n in (*(n / 10 for n in STEPS[:-1]), *STEPS)]
        largest = next(i for i, step in enumerate(steps) if step >= raw * (1 - 1e-9))
        for step in reversed(steps[: largest + 1]):
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last > first:
                break
        return [n * step for n in range(first, last + 1)]

    def _written(self, ticks):
        """Numbers with as many digits as tell them apart."""
        if self.scale == "log":
            return [f"$10^{{{round(math.log10(x))}}}$".replace("-", "−") for x in ticks]
        digits = 0
        while digits < 6 and any(abs(round(x, digits) - x) > 1e-9 * abs(x) for x in ticks):
            digits += 1
        return [f"{x:.{digits}f}".replace("-", "−") for x in ticks]
