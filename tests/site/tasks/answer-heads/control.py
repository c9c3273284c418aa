def right(chosen, num_heads):  # a random order of each layer's other heads
    layers = sorted({layer for layer, _ in chosen})
    free = {
        layer: [head for head in torch.randperm(num_heads).tolist() if (layer, head) not in chosen]
        for layer in layers
    }
    return [(layer, free[layer].pop()) for layer, _ in chosen]


# From any layer.
def wrong_layers(chosen, num_heads):
    free = [
        (layer, head)
        for layer in range(4)
        for head in range(num_heads)
        if (layer, head) not in chosen
    ]
    return [free[i] for i in torch.randperm(len(free))[: len(chosen)].tolist()]


# A chosen head may be drawn.
def wrong_chosen(chosen, num_heads):
    drawn = {}
    for layer, _ in chosen:
        order = torch.randperm(num_heads).tolist()
        drawn.setdefault(layer, order)
    return [(layer, drawn[layer].pop()) for layer, _ in chosen]


# The same head twice.
def wrong_twice(chosen, num_heads):
    found = []
    for layer, _ in chosen:
        free = [head for head in range(num_heads) if (layer, head) not in chosen]
        found.append((layer, free[torch.randint(len(free), ()).item()]))
    return found


# The next free one, always the same: no lot.
def wrong_next(chosen, num_heads):
    found = []
    for layer, _ in chosen:
        taken = [*chosen, *found]
        free = [head for head in range(num_heads) if (layer, head) not in taken]
        found.append((layer, free[0]))
    return found


# A random head for the first only.
def wrong_one(chosen, num_heads):
    return others(chosen, num_heads)[:1]
