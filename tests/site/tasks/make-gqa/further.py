def right(model, steps=60, every=10):  # one list, from a loop over seeds
    model, losses = copy.deepcopy(model), []
    for seed in range(5, 5 + steps + 1, every):
        losses.append(loss_of(model))
        train(model, every, seed)
    return losses


# The given model is trained: the next call starts where this one ended.
def wrong_own(model, steps=60, every=10):
    losses = [loss_of(model)]
    for step in range(0, steps, every):
        train(model, every, seed=5 + step)
        losses.append(loss_of(model))
    return losses


# The start is missing.
def wrong_start(model, steps=60, every=10):
    return further(model, steps, every)[1:]


# The same pieces of text again and again.
def wrong_pieces(model, steps=60, every=10):
    model = copy.deepcopy(model)
    losses = [loss_of(model)]
    for _ in range(0, steps, every):
        train(model, every, seed=0)
        losses.append(loss_of(model))
    return losses


# Every stretch begins with the converted model.
def wrong_again(model, steps=60, every=10):
    losses = [loss_of(model)]
    for step in range(0, steps, every):
        one = copy.deepcopy(model)
        train(one, every, seed=5 + step)
        losses.append(loss_of(one))
    return losses
