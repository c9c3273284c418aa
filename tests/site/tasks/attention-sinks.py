def right(i, window, sinks):
    tokens = [j for j in range(i + 1) if j < sinks or j > i - window]
    return tokens, [len(tokens) - 1 - place for place in range(len(tokens))]


# Distances in the text, not in the cache.
def wrong_distance(i, window, sinks):
    tokens, _ = right(i, window, sinks)
    return tokens, [i - j for j in tokens]


# Sinks are part of the window, so fewer near tokens are seen.
def wrong_size(i, window, sinks):
    return right(i, window - sinks, sinks)


# The window begins one token too early.
def wrong_window(i, window, sinks):
    return right(i, window + 1, sinks)


# Sinks that are also in the window come twice.
def wrong_twice(i, window, sinks):
    tokens = [*range(min(sinks, i + 1)), *range(max(0, i + 1 - window), i + 1)]
    return tokens, list(range(len(tokens)))[::-1]


# Distances from the front.
def wrong_order(i, window, sinks):
    tokens, distances = right(i, window, sinks)
    return tokens, distances[::-1]


# No sinks.
def wrong_sinks(i, window, sinks):
    return right(i, window, 0)
