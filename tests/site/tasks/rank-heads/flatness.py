def right(weights):  # what isn't there is left out by hand
    rows = weights[..., 1:, :]
    logs = rows.clamp(min=1e-30).log()
    counts = torch.ones(weights.shape[-2:]).tril().sum(dim=-1)[1:]
    return (-(rows * logs).sum(dim=-1) / counts.log()).mean(dim=(0, 2))


# 0 log 0 comes out as NaN.
def wrong_nan(weights):
    rows = weights[:, :, 1:]
    entropy = -(rows * rows.log()).sum(dim=-1)
    return (entropy / torch.arange(2, weights.shape[-1] + 1).log()).mean(dim=(0, 2))


# Early queries see few keys, and can't be as flat as late ones.
def wrong_length(weights):
    entropy = torch.special.entr(weights[:, :, 1:]).sum(dim=-1)
    largest = torch.tensor(weights.shape[-1]).log()
    return (entropy / largest).mean(dim=(0, 2))


# How sharp, and not how flat.
def wrong_sign(weights):
    rows = weights[:, :, 1:]
    entropy = torch.special.entr(rows).sum(dim=-1)
    return 1 - (entropy / torch.arange(2, weights.shape[-1] + 1).log()).mean(dim=(0, 2))


# Entropies themselves: they grow with the length.
def wrong_entropy(weights):
    return torch.special.entr(weights[:, :, 1:]).sum(dim=-1).mean(dim=(0, 2))
