def right(parents, tokens, best, first):
    def after(node, wanted):
        for i, parent in enumerate(parents):
            if parent == node and tokens[i] == wanted:
                return [i, *after(i, best[i])]
        return []

    return after(-1, first)


# Nodes are followed wherever they stand in the tree.
def wrong_parents(parents, tokens, best, first):
    path, wanted = [], first
    for i, token in enumerate(tokens):
        if token == wanted:
            path.append(i)
            wanted = best[i]
    return path


# The root is kept whatever the model wants.
def wrong_first(parents, tokens, best, first):
    return right(parents, tokens, best, tokens[0])


# Tokens in place of nodes.
def wrong_tokens(parents, tokens, best, first):
    return [tokens[i] for i in right(parents, tokens, best, first)]


# Each node that agrees with its own parent, on whichever path.
def wrong_paths(parents, tokens, best, first):
    wanted = [first if parent < 0 else best[parent] for parent in parents]
    return [i for i, token in enumerate(tokens) if token == wanted[i]]


# The last node that agrees is left out.
def wrong_last(parents, tokens, best, first):
    return right(parents, tokens, best, first)[:-1]


# From the end to the root.
def wrong_backwards(parents, tokens, best, first):
    return right(parents, tokens, best, first)[::-1]
