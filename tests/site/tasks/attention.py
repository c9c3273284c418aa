def right(X, W_q, W_k, W_v, T):
    return head(X, W_q / T, W_k, W_v)


# Hot and cold are interchanged.
def wrong_way(X, W_q, W_k, W_v, T):
    return head(X, W_q * T, W_k, W_v)


# The weights are divided, not the scores.
def wrong_place(X, W_q, W_k, W_v, T):
    return head(X, W_q, W_k, W_v) / T


# Queries and keys are both divided, so the scores are twice.
def wrong_twice(X, W_q, W_k, W_v, T):
    return head(X, W_q / T, W_k / T, W_v)


# The temperature takes the place of the root of D.
def wrong_scale(X, W_q, W_k, W_v, T):
    return ((X @ W_q) @ (X @ W_k).T / T).softmax(dim=-1) @ (X @ W_v)


# Each key's weights add up to one, not each query's.
def wrong_axis(X, W_q, W_k, W_v, T):
    scores = (X @ W_q) @ (X @ W_k).T / W_k.shape[1] ** 0.5
    return (scores / T).softmax(dim=0) @ (X @ W_v)


# Words get what they hand over, whatever they look for.
def wrong_values(X, W_q, W_k, W_v, T):
    return X @ W_v
