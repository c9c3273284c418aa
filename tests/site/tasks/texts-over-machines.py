def right(length, ranks, rank):  # there and back, token by token
    return [
        i for i in range(length) if min(i % (2 * ranks), 2 * ranks - 1 - i % (2 * ranks)) == rank
    ]


# In blocks, the last machine computes most.
def wrong_blocks(length, ranks, rank):
    size = length // ranks
    return list(range(rank * size, rank * size + size))


# In stripes, it is almost equal.
def wrong_stripes(length, ranks, rank):
    return list(range(rank, length, ranks))


# Its mirror isn't at the other end: some tokens are held twice.
def wrong_mirror(length, ranks, rank):
    size = length // (2 * ranks)
    late = length // 2 + (ranks - 1) * size
    return [*range(rank * size, (rank + 1) * size), *range(late, late + size)]


# The last token of each machine is lost.
def wrong_short(length, ranks, rank):
    return right(length, ranks, rank)[:-1]


# Every machine holds everything.
def wrong_all(length, ranks, rank):
    return list(range(length))
