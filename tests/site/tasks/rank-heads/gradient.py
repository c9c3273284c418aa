def right(model):  # one gate for each text, and one call
    gates = torch.ones(len(texts.tokens), 1, 2, 4, requires_grad=True)
    loss_with(model, gates).sum().backward()
    return gates.grad[:, 0].abs().mean(dim=0)


# Slopes of opposite signs cancel before their size is taken.
def wrong_cancel(model):
    gates = torch.ones(2, 4, requires_grad=True)
    return torch.autograd.grad(loss_with(model, gates).mean(), gates)[0].abs()


# A sum over texts grows with their number.
def wrong_sum(model):
    gates = torch.ones(len(texts.tokens), 1, 2, 4, requires_grad=True)
    return torch.autograd.grad(loss_with(model, gates).sum(), gates)[0][:, 0].abs().sum(dim=0)


# At gates of zero the slope is another one.
def wrong_zero(model):
    gates = torch.zeros(len(texts.tokens), 1, 2, 4, requires_grad=True)
    return torch.autograd.grad(loss_with(model, gates).sum(), gates)[0][:, 0].abs().mean(dim=0)


# The slopes of the first text.
def wrong_first(model):
    gates = torch.ones(2, 4, requires_grad=True)
    return torch.autograd.grad(loss_with(model, gates)[0], gates)[0].abs()
