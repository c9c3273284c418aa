def right(model, layer, head):  # the values that feed the head, with their bias
    model = copy.deepcopy(model)
    values = model.layers[layer].v_proj
    for each in (values.weight.data, values.bias.data):
        each[16 * head : 16 * (head + 1)] = 0
    return model


# Behind the output projection there are no heads: these are features of all of them.
def wrong_behind(model, layer, head):
    model = copy.deepcopy(model)
    output = model.layers[layer].out_proj
    for each in (output.weight.data, output.bias.data):
        each[16 * head : 16 * (head + 1)] = 0
    return model


# No copy is made: the next head goes from what is left.
def wrong_own(model, layer, head):
    columns = slice(16 * head, 16 * head + 16)
    model.layers[layer].out_proj.weight.data[:, columns] = 0
    return model


# Without its keys a head still adds a mean of values.
def wrong_keys(model, layer, head):
    model = copy.deepcopy(model)
    model.layers[layer].k_proj.weight.data[16 * head : 16 * head + 16] = 0
    return model


# Features take turns, one for each head.
def wrong_turns(model, layer, head):
    model = copy.deepcopy(model)
    model.layers[layer].out_proj.weight.data[:, head::4] = 0
    return model
