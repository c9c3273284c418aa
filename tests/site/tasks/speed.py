def right(a, b, clock):
    def seconds(program):
        start = clock()
        program()
        return clock() - start

    pairs = [(seconds(a), seconds(b)) for _ in range(75)]
    return sorted(second / first for first, second in pairs)[37]


# The mean: an interruption counts fifty times.
def wrong_mean(a, b, clock):
    total, last = [0, 0], clock()
    for turn in range(200):
        (a, b)[turn % 2]()
        total[turn % 2] += clock() - last
        last = clock()
    return total[1] / total[0]


# First all turns of one, then all of the other: the machine has changed.
def wrong_blocks(a, b, clock):
    medians = []
    for program in (a, b):
        times = []
        for _ in range(100):
            start = clock()
            program()
            times.append(clock() - start)
        medians.append(sorted(times)[50])
    return medians[1] / medians[0]


# a over b.
def wrong_way(a, b, clock):
    return 1 / right(a, b, clock)


# One turn.
def wrong_once(a, b, clock):
    start = clock()
    a()
    middle = clock()
    b()
    return (clock() - middle) / (middle - start)


# A difference, not a ratio.
def wrong_difference(a, b, clock):
    return right(a, b, clock) - 1


# What the page has found, whatever runs.
def wrong_fixed(a, b, clock):
    return 1.1
