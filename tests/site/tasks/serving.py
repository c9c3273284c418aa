def takes(replica, tokens, batch):
    return replica.step_nanoseconds([Chunk(1, tokens - 1)] * batch)


def grown(limit, most, time):
    """Doubled while it is fast enough, then one by one in ever smaller steps."""
    batch, step = 0, 1
    while step and most >= 1:
        if batch + step <= most and time(batch + step) <= limit:
            batch, step = batch + step, 2 * step
        else:
            step //= 2
    return batch


def right(replica, tokens, limit):
    most = replica.cache_tokens // tokens
    return grown(limit, most, lambda batch: takes(replica, tokens, batch))


# Memory is forgotten.
def wrong_memory(replica, tokens, limit):
    return grown(limit, 2000, lambda batch: takes(replica, tokens, batch))


# The limit is forgotten: as many as fit.
def wrong_limit(replica, tokens, limit):
    return replica.cache_tokens // tokens


# As if each sequence took as long as one alone.
def wrong_alone(replica, tokens, limit):
    return min(replica.cache_tokens // tokens, limit // takes(replica, tokens, 1))


# Machines that wait for each other are forgotten.
def wrong_waiting(replica, tokens, limit):
    def time(batch):
        chunks = [Chunk(1, tokens - 1)] * batch
        return replica.step_nanoseconds(chunks) - replica.waiting_nanoseconds(chunks)

    return grown(limit, replica.cache_tokens // tokens, time)


# The cache is forgotten: as if no token came before.
def wrong_past(replica, tokens, limit):
    return grown(limit, replica.cache_tokens // tokens, lambda batch: takes(replica, 1, batch))


# One too many.
def wrong_more(replica, tokens, limit):
    return right(replica, tokens, limit) + 1


# One too few, where one is possible.
def wrong_less(replica, tokens, limit):
    return max(0, right(replica, tokens, limit) - 1)
