def right(start, frames, rows, columns):
    i = torch.arange(frames * rows * columns)
    return start + torch.stack([i // (rows * columns), i // columns % rows, i % columns])


# Rows run fastest.
def wrong_order(start, frames, rows, columns):
    i = torch.arange(frames * rows * columns)
    return start + torch.stack([i // (rows * columns), i % rows, i // rows % columns])


# Only time begins at start.
def wrong_start(start, frames, rows, columns):
    i = torch.arange(frames * rows * columns)
    return torch.stack([start + i // (rows * columns), i // columns % rows, i % columns])


# One number for each token, on all axes: that is text.
def wrong_text(start, frames, rows, columns):
    return (start + torch.arange(frames * rows * columns)).expand(3, -1)


# Axes last.
def wrong_shape(start, frames, rows, columns):
    axes = [torch.arange(n) for n in (frames, rows, columns)]
    return start + torch.cartesian_prod(*axes)


# The last patch is left out.
def wrong_last(start, frames, rows, columns):
    return right(start, frames, rows, columns)[:, :-1]


# Places are counted from 1.
def wrong_first(start, frames, rows, columns):
    return right(start, frames, rows, columns) + 1
