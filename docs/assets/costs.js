// What serving a model takes: what mhattn.costs counts in kind_costs.py and serving.py, with the same functions. All
// numbers are BigInts, since counts are exact. Sizes and counts keep their names of Python, under which the form, the
// address and the lines to copy have them. Nothing is checked here: calculator.js takes no impossible size.
// tests/site/test_calculator_costs.py compares every count with Python's.

const CERTAIN = 10n ** 18n  // a chance is counted in parts of it

const min = (a, b) => (a < b ? a : b)
const max = (a, b) => (a > b ? a : b)
const ceilDiv = (number, divisor) => (number + divisor - 1n) / divisor
const sumOf = (all, number) => all.reduce((sum, one) => sum + number(one), 0n)

const bytesOf = (numbers, bits) => ceilDiv(numbers * bits, 8n)

/** What a layer of one kind keeps and multiplies. */
export function kindCost(embedDim, kind) {
  const {
    layers, num_heads: heads, num_kv_heads: kvHeads, head_dim: headDim, sees = "all", window = null, shared = false,
    output_gate: gate = false, gate_rank: gateRank = null, kv_lora_rank: kvRank = null, q_lora_rank: queryRank = null,
    qk_rope_head_dim: ropeDim = 0n, v_head_dim = null, o_lora_rank: outputRank = null, output_groups: groups = 1n,
    every = 1n, index_heads: indexHeads = 0n, index_dim: indexDim = 0n, top_keys = null,
  } = kind
  const valueDim = v_head_dim ?? headDim
  const values = heads * valueDim
  if (sees === "state") {
    const gates = gateRank === null ? embedDim * (values + heads) : 2n * gateRank * (embedDim + values)
    return {
      layers, weights: embedDim * (2n * kvHeads * headDim + 2n * values + heads) + gates, cached: 0n,
      state: values * headDim, window: null, chunked: false, pair: 0n, step: 0n, indexed: 0n, index_cached: 0n,
      top_keys: null, parts: heads, every: 1n, together: 0n,
    }
  }
  const keyDim = headDim + ropeDim
  const pair = heads * (keyDim + valueDim)
  const query = queryRank === null ? embedDim * heads * keyDim : queryRank * (embedDim + heads * keyDim)
  const low = kvRank !== null || outputRank !== null  // then each head of the indexer weighs its scores
  const indexer = (queryRank ?? embedDim) * indexHeads * indexDim + (low ? embedDim * indexHeads : 0n)
  let [weights, step, numbers, parts, together] = [query + indexer, pair, kvHeads * (keyDim + valueDim), kvHeads, 0n]
  if (outputRank !== null) {  // one vector is key and value at once, of all heads
    weights += embedDim * headDim + outputRank * (values + groups * embedDim)
    numbers = headDim
    parts = 1n
    if (every > 1n) {  // what mixes the tokens, and its gate; those of an indexer go into two rows
      together = headDim + indexDim
      weights += 2n * embedDim * together * (indexDim === 0n ? 1n : 2n)
    }
  } else {
    if (kvRank !== null) {  // a latent
      numbers = kvRank + ropeDim
      step = heads * (2n * kvRank + ropeDim)
      parts = 1n
      weights += kvRank * heads * (headDim + valueDim)
    }
    weights += embedDim * (values * (gate ? 2n : 1n) + indexDim)
    if (!shared) weights += embedDim * numbers
    numbers += indexDim
  }
  return {
    layers, weights, cached: shared ? 0n : numbers, state: 0n, window, chunked: sees === "chunk", pair, step,
    indexed: indexHeads * indexDim, index_cached: indexDim, top_keys, parts, every, together,
  }
}

/** What a decoder, or an encoder, takes on one device or on several. */
export function servingCost(kinds, sizes) {
  const { embed_dim, mlp, vocabulary, tied, tokens, batch, weight_bits, cache_bits, causal, device } = sizes
  const layers = sumOf(kinds, kind => kind.layers)
  const attention = sumOf(kinds, kind => kind.layers * kind.weights)
  const mlps = mlpWeights(mlp, embed_dim, layers, mlp.experts)
  const head = vocabulary * embed_dim
  const tables = head * (tied ? 1n : 2n) + sizes.learned_positions * embed_dim
  const active = attention + mlpWeights(mlp, embed_dim, layers, mlp.per_token)
  const weights = bytesOf(attention + mlps + tables, weight_bits)
  const cacheOn = (batch, devices) => (causal ? bytesOf(numbersKept(kinds, tokens, batch, devices), cache_bits) : 0n)
  const bytesOn = devices => ceilDiv(weights, devices) + cacheOn(batch, devices)
  let fewest = 1n
  while (fewest !== null && bytesOn(fewest) > device.memory) fewest = fewest < 4096n ? 2n * fewest : null
  const devices = sizes.devices || (fewest ?? 1n)

  const scores = sumOf(kinds, kind => kind.layers * promptPairs(kind, tokens, causal))
  const prompt = 2n * (tokens * active + head + scores)
  const step = 2n * (active + head + sumOf(kinds, kind => kind.layers * stepPairs(kind, tokens)))
  const added = sumOf(kinds, kind => kind.layers * (kind.cached + kind.together / kind.every))

  // A time is the larger of two: to move what one device moves, and to multiply what it multiplies.
  const nanoseconds = (moved, flops) =>
    max(10n ** 9n * moved / device.bandwidth, 10n ** 9n * flops / (devices * device.flops))
  const matricesRead = tokens =>
    ceilDiv(bytesOf(attention + head + mlpsMet(mlp, embed_dim, layers, tokens), weight_bits), devices)
  const promptTime = batch => nanoseconds(matricesRead(tokens * batch) + cacheOn(batch, devices), batch * prompt)
  const stepTime = batch => (causal
    ? nanoseconds(matricesRead(batch) + bytesOf(numbersRead(kinds, tokens, batch, devices), cache_bits), batch * step)
    : null)
  return {
    cache_bytes: cacheOn(batch, 1n), token_bytes: bytesOf(causal ? added : 0n, cache_bits),
    attention_parameters: attention, mlp_parameters: mlps, vocabulary_parameters: tables,
    active_parameters: active + tables, weight_bytes: weights, devices, device_bytes: bytesOn(devices), fewest,
    score_flops: 2n * batch * scores, prompt_flops: batch * prompt, step_flops: batch * step,
    prompt_nanoseconds: promptTime(1n), prompts_nanoseconds: promptTime(batch),
    step_nanoseconds: stepTime(1n), steps_nanoseconds: stepTime(batch),
  }
}

/** The matrices of MLPs, of so many routed experts a layer, and of the routers. */
function mlpWeights(mlp, embedDim, layers, taken) {
  const dense = embedDim * mlp.matrices * (mlp.dim ?? 0n)
  if (mlp.experts === 0n) return layers * dense
  const around = 2n * (mlp.expert_embed ?? 0n)
  const expert = (mlp.expert_embed ?? embedDim) * mlp.matrices * mlp.expert_dim
  const sparse = expert * (taken + mlp.shared) + embedDim * (mlp.experts + around)
  return mlp.dense_layers * dense + (mlp.expert_layers ?? layers - mlp.dense_layers) * sparse
}

/** What is read of the MLPs if so many tokens choose their experts evenly, at random. */
function mlpsMet(mlp, embedDim, layers, tokens) {
  const always = mlpWeights(mlp, embedDim, layers, 0n)
  if (mlp.experts === 0n) return always
  const routed = mlpWeights(mlp, embedDim, layers, mlp.experts) - always
  return always + routed - routed * unmetParts(mlp.experts - mlp.per_token, mlp.experts, tokens) / CERTAIN
}

/** (others / experts) ** tokens: how likely it is that no token chooses an expert. */
function unmetParts(others, experts, tokens) {
  if (tokens === 0n) return CERTAIN
  const half = unmetParts(others, experts, tokens / 2n)
  const square = half * half / CERTAIN
  return tokens % 2n === 1n ? square * others / experts : square
}

const tokensSeen = (kind, tokens) => (kind.window === null ? tokens : min(tokens, kind.window))

/** How many of so many keys an indexer leaves. */
const chosen = (kind, keys) => (kind.top_keys === null ? keys : min(keys, kind.top_keys))

/** How many keys the last token attends to; beside single ones, one for each `every`. */
function keysMet(kind, tokens) {
  const seen = tokensSeen(kind, tokens)
  return kind.together > 0n ? seen + chosen(kind, tokens / kind.every) : chosen(kind, seen)
}

/** Pairs of a token and one of the last so many up to itself. */
const visiblePairs = (tokens, window) => (window * (window + 1n)) / 2n + (tokens - window) * window

/** The sum of min(token / every, most) over the tokens from 1 on. */
function rowsMet(tokens, every, most) {
  const full = min(tokens / every, most)
  const before = every * full * (full - 1n) / 2n  // up to the first token that meets so many
  return before + (tokens + 1n - full * every) * full
}

/** Multiplications of a layer's scores and mixing in a prompt; of a state, two a number. */
function promptPairs(kind, tokens, causal) {
  if (!causal) return tokens * tokens * kind.pair
  const seen = tokensSeen(kind, tokens)
  let met = visiblePairs(tokens, kind.together > 0n ? seen : chosen(kind, seen))
  if (kind.together > 0n) met += rowsMet(tokens, kind.every, chosen(kind, tokens))
  if (kind.chunked) {
    const rest = tokens % seen
    met = tokens / seen * visiblePairs(seen, seen) + visiblePairs(rest, rest)
  }
  return met * kind.pair + rowsMet(tokens, kind.every, tokens) * kind.indexed + 2n * tokens * kind.state
}

/** Multiplications of one more token with what a layer keeps. */
const stepPairs = (kind, tokens) =>
  keysMet(kind, tokens) * kind.step + tokens / kind.every * kind.indexed + 2n * kind.state

/** What one of so many devices has of what each layer holds: heads are shared out, and then sequences. */
const shareOf = (kinds, held, batch, devices) =>
  sumOf(kinds, kind => kind.layers * held(kind) * ceilDiv(batch * kind.parts, devices) / kind.parts)

/** What one of so many devices keeps. */
const numbersKept = (kinds, tokens, batch, devices) => shareOf(kinds, kind =>
  tokensSeen(kind, tokens) * kind.cached + tokens / kind.every * kind.together + kind.state, batch, devices)

/** What it reads of that for one more token of each sequence. */
const numbersRead = (kinds, tokens, batch, devices) =>
  shareOf(kinds, kind => numbersMet(kind, tokens) + kind.state, batch, devices)

/** What one more token reads in a layer: of an indexer all keys, of the rest what it chose. */
function numbersMet(kind, tokens) {
  const rows = tokens / kind.every
  if (kind.together > 0n) {
    const older = chosen(kind, rows) * (kind.together - kind.index_cached) + rows * kind.index_cached
    return tokensSeen(kind, tokens) * kind.cached + older
  }
  const index = min(kind.cached, kind.index_cached)
  return keysMet(kind, tokens) * (kind.cached - index) + rows * index
}
