def right(query, key, value, grad_output):
    D = query.shape[-1]
    cap = (query @ key.T / D**0.5).tanh()
    A = cap.softmax(dim=-1)
    rows = zip(A, grad_output @ value.T, strict=True)
    # the softmax of each row by its Jacobian
    grads = torch.stack([(a.diag() - a[:, None] * a) @ g for a, g in rows])
    grads = grads * (1 - cap.square()) / D**0.5
    return grads @ key, grads.T @ query, A.T @ grad_output


def with_error(query, key, value, grad_output, slope=lambda cap: 1 - cap**2, mean=1, scale=None):
    """The gradients with one step of the chain made wrong."""
    root = query.shape[-1] ** 0.5
    cap = (query @ key.T / root).tanh()
    A = cap.softmax(dim=-1)
    grads = grad_output @ value.T
    grads = A * (grads - mean * (A * grads).sum(dim=-1, keepdim=True)) * slope(cap)
    grads = grads * (1 / root if scale is None else scale)
    return grads @ key, grads.T @ query, A.T @ grad_output


# The slope of tanh is forgotten.
def wrong_slope(*args):
    return with_error(*args, slope=lambda cap: 1)


# The slope is taken at the capped score.
def wrong_place(*args):
    return with_error(*args, slope=lambda cap: 1 - cap.tanh() ** 2)


# Weights that compete are forgotten: no mean is taken away.
def wrong_mean(*args):
    return with_error(*args, mean=0)


# The scale is forgotten on the way back.
def wrong_scale(*args):
    return with_error(*args, scale=1)


# Autograd does it. RuntimeError
def wrong_autograd(query, key, value, grad_output):
    with torch.enable_grad():
        inputs = [x.requires_grad_() for x in (query, key, value)]
        return torch.autograd.grad(capped(*inputs), inputs, grad_output)


# Keys before queries.
def wrong_order(*args):
    query, key, value = right(*args)
    return key, query, value


# The values' gradient is that of the output.
def wrong_value(query, key, value, grad_output):
    grads = right(query, key, value, grad_output)
    return *grads[:2], grad_output
