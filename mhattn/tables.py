"""stub"""


def table(numbers, rows=None, columns=None, digits=2):
    import torch

    numbers = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    if not isinstance(numbers[0], (list, tuple)):
        numbers = [numbers]

    def f(x):
        return str(int(x)) if float(x).is_integer() and digits == 0 else f"{x:.{digits}f}"

    out = [["", *(columns or [""] * len(numbers[0]))]] + [
        [(rows or [""] * len(numbers))[i], *map(f, r)] for i, r in enumerate(numbers)
    ]
    w = [max(len(r[i]) for r in out) for i in range(len(out[0]))]
    L = [
        "| " + " | ".join(c.rjust(w[i]) if i else c.ljust(w[i]) for i, c in enumerate(r)) + " |"
        for r in out
    ]
    return "\n".join([L[0], "|" + "|".join("-" * (x + 2) for x in w) + "|", *L[1:]])
