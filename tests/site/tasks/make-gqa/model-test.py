def right(model, num_kv_heads):  # the package's own function
    new = copy.deepcopy(model)
    for block in new.blocks:
        block.attention = pool_kv_heads(block.attention, num_kv_heads)
    return new


# The given model itself is converted.
def wrong_own(model, num_kv_heads):
    for block in model.blocks:
        block.attention = grouped(block.attention, num_kv_heads)
    return model


# A copy of the model's outside: its blocks are the given model's own.
def wrong_shallow(model, num_kv_heads):
    return wrong_own(copy.copy(model), num_kv_heads)


# Only the first layer.
def wrong_layer(model, num_kv_heads):
    model = copy.deepcopy(model)
    model.blocks[0].attention = grouped(model.blocks[0].attention, num_kv_heads)
    return model


# A new model, which knows nothing.
def wrong_new(model, num_kv_heads):
    sizes = {"embed_dim": 64, "num_heads": 8, "mlp_dim": 128, "base": 100.0, "eps": 1e-5}
    return LanguageModel(len(letters), 2, num_kv_heads=num_kv_heads, **sizes)
