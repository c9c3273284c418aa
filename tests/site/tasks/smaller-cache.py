def right_by_levels(x, bits):
    levels = torch.linspace(x.min().item(), x.max().item(), 2**bits)
    codes = (x[:, None] - levels).abs().argmin(dim=-1)
    low, step = x.min(), (x.max() - x.min()) / (2**bits - 1)
    return codes, low + step * codes


# One step too many: as many steps as levels.
def wrong_steps(x, bits):
    low = x.min()
    step = (x.max() - low) / 2**bits
    codes = ((x - low) / step).round().long()
    return codes, low + step * codes


# Cuts off instead of rounding.
def wrong_floor(x, bits):
    low = x.min()
    step = (x.max() - low) / (2**bits - 1)
    codes = ((x - low) / step).long()
    return codes, low + step * codes


# Even levels around zero: the lowest number has no code 0 of its own.
def wrong_symmetric(x, bits):
    step = 2 * x.abs().max() / (2**bits - 1)
    codes = (x / step).round().long() + 2 ** (bits - 1)
    return codes, step * (codes - 2 ** (bits - 1))


# Forgets where the levels start.
def wrong_start(x, bits):
    low = x.min()
    step = (x.max() - low) / (2**bits - 1)
    codes = ((x - low) / step).round().long()
    return codes, step * codes


# Codes from 1.
def wrong_first(x, bits):
    codes, rounded = right_by_levels(x, bits)
    return codes + 1, rounded


# The numbers themselves, not those that the codes stand for.
def wrong_numbers(x, bits):
    return right_by_levels(x, bits)[0], x
