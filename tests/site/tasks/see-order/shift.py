def right(way):  # one query, many keys, another shift
    q, k, places = torch.randn(1, 16), torch.randn(9, 16), torch.arange(9)
    scores = [way(q, start + places[4:5]) @ way(k, start + places).T for start in (7, 400)]
    return (scores[0] - scores[1]).norm()


# Twice as much says the same: what counts is whether anything moves.
def right_scaled(way):
    return 2 * right(way)


# Only the queries move: that changes every distance.
def wrong_queries(way):
    q, k = torch.randn(2, 6, 16)
    places = torch.arange(6)
    return (way(q, places + 300) @ way(k, places).T - way(q, places) @ way(k, places).T).abs().max()


# The vectors change, where the scores should be compared.
def wrong_vectors(way):
    q, places = torch.randn(6, 16), torch.arange(6)
    return (way(q, places + 300) - way(q, places)).abs().max()


# Other queries at the other place.
def wrong_draws(way):
    places = torch.arange(6)
    one, two = (
        way(torch.randn(6, 16), each) @ way(torch.randn(6, 16), each).T
        for each in (places, places + 300)
    )
    return (one - two).abs().max()


# A word with itself: its distance is 0 wherever it stands.
def wrong_lengths(way):
    q, places = torch.randn(6, 16), torch.arange(6)
    return (way(q, places + 300).norm(dim=1) - way(q, places).norm(dim=1)).abs().max()
