def right(model, order):  # without copies: heads are replaced while the loss is computed
    outputs, losses = [layer.out_proj for layer in model.layers], []
    for gone in range(9):
        with replace_heads(outputs, 4, order[:gone]):
            losses.append(loss_of(model))
    return losses


# Each head goes alone, and the others come back.
def wrong_alone(model, order):
    return [loss_of(model)] + [loss_of(removed(model, *head)) for head in order]


# The curve has no start.
def wrong_start(model, order):
    losses = []
    for layer, head in order:
        model = removed(model, layer, head)
        losses.append(loss_of(model))
    return losses


# The last of the order goes first.
def wrong_end(model, order):
    losses = [loss_of(model)]
    for layer, head in reversed(order):
        model = removed(model, layer, head)
        losses.append(loss_of(model))
    return losses


# The given model itself loses its heads.
def wrong_own(model, order):
    losses = [loss_of(model)]
    for layer, head in order:
        model.layers[layer].out_proj.weight.data[:, 16 * head : 16 * head + 16] = 0
        losses.append(loss_of(model))
    return losses
