def right(model, head):
    import copy

    other = copy.deepcopy(model)
    D = 64 // model.attention.H
    other.attention.o.weight.data[:, (head - 1) * D : head * D].zero_()
    return other


# Heads are counted from 0.
def wrong_count(model, head):
    return right(model, head % 4 + 1)


# Rows of W_o are zero: they are features of the output, not a head's.
def wrong_rows(model, head):
    other = right(model, head)
    W = model.attention.o.weight.data.clone()
    W[(head - 1) * 16 : head * 16] = 0
    other.attention.o.weight.data = W
    return other


# A new model, without what was learned.
def wrong_new(model, head):
    return right(Model(model.attention.H), head)


# The model itself is changed.
def wrong_same(model, head):
    model.attention.o.weight.data[:, (head - 1) * 16 : head * 16] = 0
    return model


# The bias of the output is off as well.
def wrong_bias(model, head):
    other = right(model, head)
    other.attention.o.bias.data.zero_()
    return other


# The values are off, their bias isn't: a constant is left.
def wrong_values(model, head):
    other = right(model, head)
    other.attention.o.weight.data.copy_(model.attention.o.weight)
    other.attention.v.weight.data[(head - 1) * 16 : head * 16] = 0
    return other
