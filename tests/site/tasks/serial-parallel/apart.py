def right(one, other, layer, x):  # backward, with a random direction
    torch.manual_seed(7)
    direction, found = torch.randn_like(x), []
    for way in (one, other):
        layer.zero_grad()
        given = x.clone().requires_grad_()
        output = way(layer, given)
        (output * direction).sum().backward()
        slopes = [given.grad, *(each.grad.clone() for each in layer.parameters())]
        found.append([output.detach(), *slopes])
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*found, strict=True))


# Twice as far says the same: what counts is whether they are one.
def right_scaled(one, other, layer, x):
    return 2 * right(one, other, layer, x)


# Outputs alone.
def wrong_outputs(one, other, layer, x):
    a, b = one(layer, x), other(layer, x)
    return ((a - b).abs().max() / a.abs().max()).item()


# A sum is blind to what sums to zero.
def wrong_sum(one, other, layer, x):
    found = []
    for way in (one, other):
        given = x.clone().requires_grad_()
        output = way(layer, given)
        slopes = torch.autograd.grad(output.sum(), [given, *layer.parameters()])
        found.append([output.detach(), *slopes])
    return max(
        ((a - b).abs().max() / a.abs().max().clamp(1)).item() for a, b in zip(*found, strict=True)
    )


def of_gradients(one, other, layer, x, parameters, clear=True, outputs=True):
    found = []
    for way in (one, other):
        if clear:
            layer.zero_grad()
        given = x.clone().requires_grad_()
        output = way(layer, given)
        output.square().sum().backward()
        grads = [each.grad.clone() for each in layer.parameters()] if parameters else [given.grad]
        found.append([output.detach()] * outputs + grads)
    return max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(*found, strict=True))


# The gradient of x alone.
def wrong_input(one, other, layer, x):
    return of_gradients(one, other, layer, x, parameters=False)


# Gradients add up from call to call.
def wrong_added(one, other, layer, x):
    return of_gradients(one, other, layer, x, parameters=True, clear=False)
