def right(model, length):  # from the weights' own shapes
    rows = [len(each.attention.k_proj.weight) for each in model.blocks]
    return sum(2 * each * length * 4 for each in rows)


# Keys only.
def wrong_keys(model, length):
    return cache_bytes(model, length) // 2


# Of every query head.
def wrong_heads(model, length):
    return 2 * 2 * 64 * 4 * length


# Numbers, not bytes.
def wrong_numbers(model, length):
    return cache_bytes(model, length) // 4


# The widths of the model, whatever is grouped, and one token too many.
def wrong_length(model, length):
    return cache_bytes(model, length + 1)
