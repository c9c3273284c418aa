def right(weights):
    places, rows, columns = {}, set(range(len(weights))), set(range(weights.shape[1]))
    while rows:
        i, j = max(((i, j) for i in rows for j in columns), key=lambda pair: weights[pair].item())
        places[i] = j
        rows.remove(i)
        columns.remove(j)
    return [places[i] for i in range(len(weights))]


# Each row takes its largest weight, whoever has taken that place.
def wrong_twice(weights):
    return weights.argmax(dim=-1).tolist()


# Rows choose in their order, not the largest weight first.
def wrong_in_order(weights):
    left, places = weights.clone(), []
    for row in left:
        places.append(row.argmax().item())
        left[:, places[-1]] = -1
    return places


# Each column chooses a row.
def wrong_columns(weights):
    return weights.T.argmax(dim=-1).tolist()[: len(weights)]


# The largest sum, which may pass over the largest weight.
def wrong_sum(weights):
    import itertools

    choices = itertools.permutations(range(weights.shape[1]), len(weights))
    return list(max(choices, key=lambda c: sum(weights[i, j] for i, j in enumerate(c))))


# The largest weight first, and then the rows in their order.
def wrong_then_in_order(weights):
    i, j = divmod(weights.argmax().item(), weights.shape[1])
    left = weights.clone()
    left[:, j] = -1
    places = []
    for row in range(len(weights)):
        places.append(j if row == i else left[row].argmax().item())
        left[:, places[-1]] = -1
    return places


# The order in which rows choose, not their places.
def wrong_rows(weights):
    return weights.amax(dim=1).argsort(descending=True).tolist()
