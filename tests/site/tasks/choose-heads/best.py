def right(errors):  # sorted, the least first
    return {
        shape: sorted(tried.items(), key=lambda pair: pair[1].sort().values[1])[0]
        for shape, tried in errors.items()
    }


# The lucky seed decides.
def wrong_lucky(errors):
    found = {}
    for shape, tried in errors.items():
        lr = min(tried, key=lambda lr: tried[lr].min())
        found[shape] = lr, tried[lr]
    return found


# One seed that went wrong decides.
def wrong_mean(errors):
    found = {}
    for shape, tried in errors.items():
        lr = min(tried, key=lambda lr: tried[lr].mean())
        found[shape] = lr, tried[lr]
    return found


# One rate for all shapes, that of the first.
def wrong_rate(errors):
    first = next(iter(errors.values()))
    lr = min(first, key=lambda lr: first[lr].median())
    return {shape: (lr, tried[lr]) for shape, tried in errors.items()}


# The best of each seed, from whatever rate.
def wrong_mixed(errors):
    found = at_best(errors)
    for shape, tried in errors.items():
        found[shape] = found[shape][0], torch.stack(list(tried.values())).amin(dim=0)
    return found
