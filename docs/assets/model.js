// A small Transformer that writes text, number by number: the one that docs/stories/live-model.pycon trains and stores.
// A browser test compares all of this with the model in Python, over random texts and with random heads off.
//
// Shapes: L characters, each a row of E numbers; H heads of D = E / H numbers; C characters in the vocabulary.
// A matrix is an array of rows, as nn.Linear stores it: (out, in).

/** The model out of its file: the length of a header (4 bytes), the header (JSON), floats, then integers of one byte. */
export function read(buffer) {
  const length = new DataView(buffer).getUint32(0, true)
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)))
  const numbers = new DataView(buffer, 4 + length, 4 * header.floats)
  const bytes = new Int8Array(buffer, 4 + length + 4 * header.floats)
  let [next, nextByte] = [0, 0]
  const float = () => numbers.getFloat32(4 * next++, true)
  const weights = {}
  for (const [name, [rows, columns]] of header.tensors) {
    if (!columns) {  // a bias, or the weight of a norm
      weights[name] = Float64Array.from({ length: rows }, float)
      continue
    }
    weights[name] = Array.from({ length: rows }, () => {
      const scale = float()  // one for each row
      return Float64Array.from(bytes.subarray(nextByte, (nextByte += columns)), x => scale * x)
    })
  }
  const letters = [...header.letters]
  return { ...header, letters, weights, numbers: new Map(letters.map((letter, i) => [letter, i])) }
}

/** Each character's number in the vocabulary; one that is not in it gets the number behind the last. */
export const encode = (model, characters) =>
  characters.map(character => model.numbers.get(character) ?? model.letters.length)

/** The sum of products of two rows; four sums at a time, since each waits for its last addition. Sizes are multiples of four. */
function dot(a, b) {
  let [p, q, r, s] = [0, 0, 0, 0]
  for (let i = 0; i < a.length; i += 4) {
    p += a[i] * b[i]
    q += a[i + 1] * b[i + 1]
    r += a[i + 2] * b[i + 2]
    s += a[i + 3] * b[i + 3]
  }
  return p + q + r + s
}

/** Each row of x (L, in) times the weight's transpose, plus the bias: (L, out). */
function linear(x, weight, bias) {
  return x.map(row => {
    const made = new Float64Array(weight.length)
    for (let i = 0; i < weight.length; i++) made[i] = dot(weight[i], row) + bias[i]
    return made
  })
}

/** Each row divided by the root of its mean square, times the weight. */
function norm(x, weight, eps) {
  return x.map(row => {
    const scale = 1 / Math.sqrt(dot(row, row) / row.length + eps)
    return row.map((number, e) => number * scale * weight[e])
  })
}

const add = (x, y) => x.map((row, i) => row.map((number, e) => number + y[i][e]))

export function softmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b))
  const parts = scores.map(score => Math.exp(score - largest))
  const sum = parts.reduce((a, b) => a + b)
  return parts.map(part => part / sum)
}

/**
 * All heads of a layer: what they add to x (L, E), what they found, side by side (L, H * D), and their weights (H, L, up to the query).
 * A head that is off leaves zeros or, with `other`, what it found in another text at the same place.
 */
function attend(x, layer, heads, isOff, other) {
  const [q, k, v] = ["q", "k", "v"].map(name => linear(x, layer(`attention.${name}_proj.weight`), layer(`attention.${name}_proj.bias`)))
  const size = x[0].length / heads  // D
  const mixed = x.map(row => new Float64Array(row.length))  // the heads side by side: (L, H * D)
  const weights = Array.from({ length: heads }, (_, head) => {
    const [Q, K, V, found] = [q, k, v, mixed].map(all => all.map(row => row.subarray(head * size, (head + 1) * size)))  // (L, D)
    return Q.map((query, i) => {
      const row = softmax(K.slice(0, i + 1).map(key => dot(query, key) / Math.sqrt(size)))  // of no key that comes later
      if (isOff(head) && other?.[i]) {
        found[i].set(other[i].subarray(head * size, (head + 1) * size))
      } else if (!isOff(head) || other) {  // a head that is off still looks, but what it finds is not used
        for (let j = 0; j <= i; j++) {
          for (let d = 0; d < size; d++) found[i][d] += row[j] * V[j][d]
        }
      }
      return row
    })
  })
  return { added: linear(mixed, layer("attention.out_proj.weight"), layer("attention.out_proj.bias")), mixed, weights }
}

/** Two products with the larger of 0 and x between them. */
function mlp(x, layer) {
  const hidden = linear(x, layer("mlp.0.weight"), layer("mlp.0.bias")).map(row => row.map(number => Math.max(0, number)))
  return linear(hidden, layer("mlp.2.weight"), layer("mlp.2.bias"))
}

/**
 * The model on the numbers of some characters, as many as its context at most; it pauses twice in a layer.
 * `off` has the heads to switch off, as "layer.head", counted from 1; with `other`, the `found` of another text, they give what they found there.
 * Returns `logits` (L, C), a score of each character to be the next, `weights` (layers, H, L, up to the query), and `found` (layers, L, H * D).
 */
export function* inSteps(model, ids, off = new Set(), other = null) {
  const { weights: w, eps } = model
  const [weights, found] = [[], []]
  let x = ids.map((id, i) => w["token.weight"][id].map((number, e) => number + w["place.weight"][i][e]))  // (L, E)
  for (let n = 0; n < model.layers; n++) {
    const layer = name => w[`blocks.${n}.${name}`]
    const attended = attend(norm(x, layer("norm1.weight"), eps), layer, model.heads, head => off.has(`${n + 1}.${head + 1}`), other?.[n])
    weights.push(attended.weights)
    found.push(attended.mixed)
    x = add(x, attended.added)
    yield
    x = add(x, mlp(norm(x, layer("norm2.weight"), eps), layer))
    yield
  }
  return { logits: linear(norm(x, w["norm.weight"], eps), w["out.weight"], w["out.bias"]), weights, found }
}

/** The same at once. */
export function forward(...given) {
  const steps = inSteps(...given)
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** The same with the page answering in between; undefined as soon as `isOld` says that nobody waits for it. */
export async function forwardInTurns(model, ids, off, isOld = () => false, other = null) {
  const steps = inSteps(model, ids, off, other)
  for (;;) {
    const { done, value } = steps.next()
    if (isOld()) return undefined
    if (done) return value
    await new Promise(go => setTimeout(go))
  }
}

/** The loss at each character, in nats: minus the log of the probability that it had. None at the first, or at an unknown one. */
export function losses(logits, ids) {
  return ids.map((id, i) => (i === 0 || id >= logits[0].length ? null : -Math.log(softmax(logits[i - 1])[id])))
}

export function mean(numbers) {
  const found = numbers.filter(number => number !== null)
  return found.length ? found.reduce((a, b) => a + b) / found.length : null
}

/** Numbers from 0 to 1, the same ones for the same seed (mulberry32). */
export function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** A character's number, drawn by its probability; at temperature 0 it is the most likely one. */
export function draw(scores, temperature, next) {
  if (temperature === 0) return scores.indexOf(scores.reduce((a, b) => Math.max(a, b)))
  let left = next()
  const chances = softmax(scores.map(score => score / temperature))
  const found = chances.findIndex(chance => (left -= chance) < 0)
  return found < 0 ? scores.length - 1 : found
}

/** The head that gives most weight to what followed the same character the time before, as "layer.head", and how much: it reads a passage twice. */
export async function copier(model) {
  const once = Array.from({ length: model.context / 2 }, (_, i) => i + 1)  // characters of the vocabulary, none of them twice
  const { weights } = await forwardInTurns(model, [...once, ...once])
  const shares = weights.map(layer => layer.map(rows =>
    mean(once.map((_, i) => rows[once.length + i][i + 1]))))
  const best = shares.flatMap((layer, n) => layer.map((share, h) => ({ name: `${n + 1}.${h + 1}`, share })))
  return best.reduce((a, b) => (b.share > a.share ? b : a))
}
