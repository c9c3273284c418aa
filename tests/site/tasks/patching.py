def right(model, tokens, other, layer, position):
    def front(tokens):
        x = model.embedding(tokens)
        for block in model.blocks[:layer]:
            x, _ = block(x)
        return x

    x, y = front(tokens), front(other)
    x[:, position] = y[:, position]
    for block in model.blocks[layer:]:
        x, _ = block(x)
    return model.norm(x) @ model.embedding.weight.T


def with_hook(model, tokens, other, layer, change, behind=False):
    kept = []
    block = model.blocks[layer]
    if behind:
        first = block.register_forward_hook(lambda m, a, r: kept.append(r[0]))
    else:
        first = block.register_forward_pre_hook(lambda m, a: kept.append(a[0]))
    model(other)
    first.remove()
    if behind:
        second = block.register_forward_hook(lambda m, a, r: (change(r[0], kept[0]), r[1]))
    else:
        second = block.register_forward_pre_hook(lambda m, a: (change(a[0], kept[0]),))
    logits = model(tokens)
    return logits, second


def at(position):
    def change(x, y):
        x = x.clone()
        x[:, position] = y[:, position]
        return x

    return change


# All positions.
def wrong_all(model, tokens, other, layer, position):
    logits, handle = with_hook(model, tokens, other, layer, lambda x, y: y)
    handle.remove()
    return logits


# The stream behind the layer.
def wrong_behind(model, tokens, other, layer, position):
    logits, handle = with_hook(model, tokens, other, layer, at(position), behind=True)
    handle.remove()
    return logits


# The hook stays.
def wrong_stays(model, tokens, other, layer, position):
    logits, _ = with_hook(model, tokens, other, layer, at(position))
    return logits


# From the position on.
def wrong_from(model, tokens, other, layer, position):
    logits, handle = with_hook(model, tokens, other, layer, at(slice(position, None)))
    handle.remove()
    return logits


# Nothing is put in.
def wrong_nothing(model, tokens, other, layer, position):
    return model(tokens)


# One position too far.
def wrong_next(model, tokens, other, layer, position):
    return right(model, tokens, other, layer, position + 1)


# The logits of that position only.
def wrong_short(model, tokens, other, layer, position):
    return right(model, tokens, other, layer, position)[:, position]
