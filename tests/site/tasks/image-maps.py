def right(weights, box, size, patch, prefix):
    rows, columns = size[0] // patch, size[1] // patch
    top, left, bottom, right = box
    row = weights.mean(dim=1)[:, 0, prefix:].unflatten(1, (rows, columns))
    tall = torch.arange(size[0]).view(rows, patch)
    wide = torch.arange(size[1]).view(columns, patch)
    tall = ((tall >= top) & (tall < bottom)).float().mean(dim=1)
    wide = ((wide >= left) & (wide < right)).float().mean(dim=1)
    inside = (row * tall[:, None] * wide).sum(dim=(1, 2))
    area = tall.mean() * wide.mean()
    return inside / row.sum(dim=(1, 2)) / area


def box_of(grid, box, patch):
    top, left, bottom, right = box
    pixels = on_pixels(grid, patch)
    return pixels[:, top:bottom, left:right].mean(dim=(1, 2)), pixels


# Registers and class token count.
def wrong_whole(weights, box, size, patch, prefix):
    grid = class_map(weights.mean(dim=1), size, patch, prefix)
    inside, _ = box_of(grid, box, patch)
    return inside * grid[0].numel()


# The maximum over heads, instead of their mean.
def wrong_maximum(weights, box, size, patch, prefix):
    grid = class_map(weights.amax(dim=1), size, patch, prefix)
    inside, pixels = box_of(grid, box, patch)
    return inside / pixels.mean(dim=(1, 2))


# Whole patches only.
def wrong_patches(weights, box, size, patch, prefix):
    grid = class_map(weights.mean(dim=1), size, patch, prefix)
    top, left, bottom, right = box
    inside = grid[:, top // patch : -(-bottom // patch), left // patch : -(-right // patch)]
    return inside.mean(dim=(1, 2)) / grid.mean(dim=(1, 2))


# The registers shift the map.
def wrong_prefix(weights, box, size, patch, prefix):
    rows, columns = size[0] // patch, size[1] // patch
    row = weights.mean(dim=1)[:, 0, 1 : 1 + rows * columns]
    inside, pixels = box_of(row.unflatten(1, (rows, columns)), box, patch)
    return inside / pixels.mean(dim=(1, 2))


# A share, not a multiple of chance.
def wrong_share(weights, box, size, patch, prefix):
    top, left, bottom, right = box
    grid = class_map(weights.mean(dim=1), size, patch, prefix)
    pixels = on_pixels(grid, patch)
    inside = pixels[:, top:bottom, left:right].sum(dim=(1, 2))
    return inside / pixels.sum(dim=(1, 2))


# Every query's map counts, not the class token's alone.
def wrong_queries(weights, box, size, patch, prefix):
    return right(weights.mean(dim=2, keepdim=True), box, size, patch, prefix)


# The images are averaged as well.
def wrong_mean(weights, box, size, patch, prefix):
    return right(weights.mean(dim=0, keepdim=True), box, size, patch, prefix)
