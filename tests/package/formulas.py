"""The formulas written out with loops and whole tables: what the registry compares with.

Nothing here calls the package. ``seen`` is a table of booleans that broadcasts to (B, H, L, S).
"""

import torch

SLOPES = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]  # ALiBi's, of six heads


def shared(x, heads):
    """Each head of a key or value for every query head of its group."""
    group = heads // x.shape[1]
    return torch.stack([x[:, head // group] for head in range(heads)], dim=1)


def distances(L, S):
    """How far each key lies behind each query: the last query stands beside the last key."""
    return torch.arange(S) - torch.arange(S - L, S)[:, None]


def weights(scores, seen):
    """Softmax over the keys that are seen; zeros without any."""
    terms = torch.where(seen, (scores - scores.abs().amax()).exp(), 0.0)
    total = terms.sum(-1, keepdim=True)
    return terms / torch.where(total > 0, total, 1.0)


def softmax(q, k, v, seen, *, add=0.0, cap=None, vectors=None):
    k, v = shared(k, q.shape[1]), shared(v, q.shape[1])
    scores = torch.einsum("bhld,bhsd->bhls", q, k)
    if vectors is not None:
        reach = len(vectors[0]) // 2
        row = distances(q.shape[2], k.shape[2]).clamp(-reach, reach) + reach  # (L, S)
        scores = scores + torch.einsum("bhld,lsd->bhls", q, vectors[0][row])
    scores = scores / q.shape[-1] ** 0.5
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    if not scores.numel():
        return q.new_zeros(*q.shape[:-1], v.shape[-1])
    share = weights(scores + add, seen)
    mixed = torch.einsum("bhls,bhsd->bhld", share, v)
    if vectors is not None:
        mixed = mixed + torch.einsum("bhls,lsd->bhld", share, vectors[1][row])
    return mixed


def linear(q, k, v, seen):
    def phi(x):
        return torch.nn.functional.elu(x) + 1

    k, v = shared(k, q.shape[1]), shared(v, q.shape[1])
    table = torch.where(seen, torch.einsum("bhld,bhsd->bhls", phi(q), phi(k)), 0.0)
    total = table.sum(-1, keepdim=True)
    return torch.einsum("bhls,bhsd->bhld", table / torch.where(total > 0, total, 1.0), v)


def delta(q, k, v, decay, beta):
    """Position by position; decay and beta are (B, H, L)."""
    k, v, decay, beta = (shared(x, q.shape[1]) for x in (k, v, decay, beta))
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    outputs = []
    for t in range(q.shape[2]):
        state = decay[:, :, t, None, None] * state
        stored = torch.einsum("bhd,bhdv->bhv", k[:, :, t], state)
        new = beta[:, :, t, None] * (v[:, :, t] - stored)
        state = state + torch.einsum("bhd,bhv->bhdv", k[:, :, t], new)
        outputs.append(torch.einsum("bhd,bhdv->bhv", q[:, :, t], state))
    return torch.stack(outputs, dim=2)


def latent(q, kept, k_b, v_b, seen):
    rank = k_b.shape[-1]
    keys = torch.einsum("bsr,hdr->bhsd", kept[:, 0, :, :rank], k_b)
    values = torch.einsum("bsr,hdr->bhsd", kept[:, 0, :, :rank], v_b)
    turned = torch.stack([kept[:, 0, :, rank:]] * len(k_b), dim=1)
    return softmax(q, torch.cat([keys, turned], -1), values, seen)


def turned(x, start, frequencies):
    """Features i and i + D / 2 as one complex number, times e^(i angle)."""
    angles = torch.arange(start, start + x.shape[2]).double()[:, None] * frequencies.double()
    half = x.shape[-1] // 2
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], dim=-1)


def project(linear, x):
    y = torch.einsum("oi,bli->blo", linear.weight, x)
    return y if linear.bias is None else y + linear.bias


def split(x, heads):
    return torch.stack(x.chunk(heads, dim=-1), dim=1)


def merge(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


def in_heads(core):
    """A layer: its projections, ``core(layer, q, k, v, seen)`` in each head, and the last one."""

    def layer(module, inputs, seen):
        query, key, value = inputs
        q = split(project(module.q_proj, query), module.num_heads)
        k = split(project(module.k_proj, key), module.num_kv_heads)
        v = split(project(module.v_proj, value), module.num_kv_heads)
        return project(module.out_proj, merge(core(module, q, k, v, seen)))

    return layer


def plain_core(module, q, k, v, seen):
    return softmax(q, k, v, seen)


def rotary_core(frequencies):
    def core(module, q, k, v, seen):
        ahead = k.shape[2] - q.shape[2]
        return softmax(turned(q, ahead, frequencies), turned(k, 0, frequencies), v, seen)

    return core


def alibi_core(module, q, k, v, seen):
    away = distances(q.shape[2], k.shape[2]).abs()
    return softmax(q, k, v, seen, add=-torch.tensor(SLOPES)[:, None, None].double() * away)


def learned_core(module, q, k, v, seen):
    table = module.position.table
    row = distances(q.shape[2], k.shape[2]) + table.shape[1] // 2
    return softmax(q, k, v, seen, add=table[:, row])


def vectors_core(module, q, k, v, seen):
    position = module.position
    return softmax(q, k, v, seen, vectors=(position.key_vectors, position.value_vectors))


def normed_core(module, q, k, v, seen):
    def normed(x, gain):
        return gain * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    return softmax(normed(q, module.attend.q_gain), normed(k, module.attend.k_gain), v, seen)


def capped_core(module, q, k, v, seen):
    return softmax(q, k, v, seen, cap=CAP)


def linear_core(module, q, k, v, seen):
    return linear(q, k, v, seen)


def delta_core(module, q, k, v, seen):
    gates, bias = (x.double() for x in (module.attend.gates, module.attend.bias))
    logits = torch.einsum("bhld,ghd->gbhl", k, gates) + bias[:, None, :, None]
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    return delta(q, k, v, *torch.sigmoid(logits))


CAP = 1.7


def latent_layer(module, inputs, seen):
    """Of self-attention: queries, latents and the shared key, turned."""
    (x,), H = inputs, module.num_heads

    def normed(x, norm):
        return norm.weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    if module.q_lora_rank is None:
        q = project(module.q_proj, x)
    else:
        q = project(module.q_b_proj, normed(project(module.q_a_proj, x), module.q_a_layernorm))
    q, size = split(q, H), module.qk_nope_head_dim
    frequencies = 10_000.0 ** (
        -torch.arange(0, module.qk_rope_head_dim, 2).double() / module.qk_rope_head_dim
    )
    q = torch.cat([q[..., :size], turned(q[..., size:], 0, frequencies)], dim=-1)
    kept = normed(project(module.kv_a_proj, x), module.kv_a_layernorm)
    key = turned(project(module.k_rope_proj, x)[:, None], 0, frequencies)
    up = (proj.weight.unflatten(0, (H, -1)) for proj in (module.k_b_proj, module.v_b_proj))
    mixed = latent(q, torch.cat([kept[:, None], key], dim=-1), *up, seen)
    return project(module.out_proj, merge(mixed))
