def right(state, phi_q, phi_k, v, fade):
    sums, total = state[:, :-1] * fade, state[:, -1] * fade
    sums, total = sums + phi_k[:, None] * v, total + phi_k
    return phi_q @ sums / (phi_q @ total), torch.cat([sums, total[:, None]], dim=1)


# The new token fades as well: a factor that all weights share changes nothing.
def right_new(state, phi_q, phi_k, v, fade):
    state = fade * (state + torch.outer(phi_k, torch.cat([v, torch.ones(1)])))
    mixed = phi_q @ state
    return mixed[:-1] / mixed[-1], state


# The values fade, the sum of the weights doesn't.
def wrong_total(state, phi_q, phi_k, v, fade):
    state = torch.cat([fade * state[:, :-1], state[:, -1:]], dim=1)
    return right(state, phi_q, phi_k, v, 1.0)


# Nothing fades.
def wrong_fade(state, phi_q, phi_k, v, fade):
    return right(state, phi_q, phi_k, v, 1.0)


# The output is read before the token is written.
def wrong_late(state, phi_q, phi_k, v, fade):
    mixed = phi_q @ state
    return mixed[:-1] / mixed[-1].clamp(min=1e-9), right(state, phi_q, phi_k, v, fade)[1]


# The output isn't divided by the sum of the weights.
def wrong_sum(state, phi_q, phi_k, v, fade):
    state = right(state, phi_q, phi_k, v, fade)[1]
    return phi_q @ state[:, :-1], state


# The state grows with each token.
def wrong_grows(state, phi_q, phi_k, v, fade):
    output, new = right(state[:5], phi_q, phi_k, v, fade)
    return output, torch.cat([new, state])


# What is new doesn't come into the state.
def wrong_old(state, phi_q, phi_k, v, fade):
    return right(state, phi_q, phi_k, v, fade)[0], state


# The output fades, not what is remembered.
def wrong_output(state, phi_q, phi_k, v, fade):
    output, state = right(state, phi_q, phi_k, v, 1.0)
    return fade * output, state
