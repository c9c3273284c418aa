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


# A row is crossed out, its column is not.
def wrong_row_only(weights):
    left, places = weights.clone(), [-1] * len(weights)
    for _ in places:
        i, j = divmod(left.argmax().item(), left.shape[1])
        places[i] = j
        left[i] = -1
    return places


# Each column chooses a row.
def wrong_columns(weights):
    return weights.T.argmax(dim=-1).tolist()[: len(weights)]
