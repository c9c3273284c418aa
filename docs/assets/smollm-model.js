// SmolLM2 in WebAssembly and JavaScript: forward passes that keep every map, every head's output and the stream, and in which
// an edit (smollm-edit.js) cuts parts or takes them from another run. No DOM: it runs in a worker, and in the tests without a browser.

import { ROW, pack, parse } from "./smollm-file.js"
import { Tokens } from "./smollm-tokens.js"

export const LONGEST = 64  // tokens
const PAGE = 65536
const up = x => Math.ceil(x / 16) * 16

export class Model {
  /** From the bytes of the file and of the product in WebAssembly. */
  static async from(buffer, product) {
    const { about, tensors } = parse(buffer)
    const model = new Model()
    model.tokens = new Tokens(about)
    const of = key => about[`llama.${key}`]
    model.layers = of("block_count")
    model.heads = of("attention.head_count")
    model.groups = of("attention.head_count_kv")
    model.width = of("embedding_length")
    model.inner = of("feed_forward_length")
    model.eps = of("attention.layer_norm_rms_epsilon")
    model.size = model.width / model.heads
    model.vocabulary = model.tokens.tokens.length
    model.place(tensors, of("rope.freq_base"))
    const instance = await WebAssembly.instantiate(product, { env: { memory: model.memory } })
    model.product = (instance.instance ?? instance).exports.product
    return model
  }

  /** Put the matrices into one memory, and behind them room for what goes in and comes out. */
  place(tensors, base) {
    let end = 64
    const room = bytes => (end = up(end + bytes)) - up(bytes)
    this.matrices = {}
    this.norms = {}
    for (const [name, { sizes, type, bytes }] of Object.entries(tensors)) {
      if (sizes.length === 1) {
        this.norms[name] = new Float32Array(bytes.slice().buffer)
        continue
      }
      const [k, m] = sizes
      const bits = type === 3 ? 4 : 8
      this.matrices[name] = { m, k, bits, at: room(m * k / 32 * ROW[bits]) }
    }
    this.scratch = room(4 * 4 * this.inner)
    this.from = room(4 * LONGEST * this.inner)
    this.to = room(4 * LONGEST * this.vocabulary)
    this.memory = new WebAssembly.Memory({ initial: Math.ceil(end / PAGE) })
    this.numbers = new Float32Array(this.memory.buffer)
    for (const [name, { at }] of Object.entries(this.matrices)) pack(tensors[name], this.memory.buffer, at)
    this.turns = Float32Array.from({ length: LONGEST * this.size }, (_, i) => {
      const [position, feature] = [Math.floor(i / this.size), i % this.size]
      const angle = position * base ** (-2 * Math.floor(feature / 2) / this.size)
      return feature % 2 ? Math.sin(angle) : Math.cos(angle)
    })
  }

  /** n rows of x times a matrix, as a view that the next call overwrites. */
  times(x, n, name) {
    const { m, k, bits, at } = this.matrices[name]
    this.numbers.set(x.subarray(0, n * k), this.from / 4)
    this.product(this.from, n, at, m, k, bits, this.scratch, this.to)
    return this.numbers.subarray(this.to / 4, this.to / 4 + n * m)
  }

  /** Rows over the root of their mean square, times the norm's factors. */
  normed(x, n, name) {
    const [factors, width] = [this.norms[name], this.width]
    const made = new Float32Array(n * width)
    for (let i = 0; i < n; i++) {
      const scale = 1 / Math.hypot(this.length(x, i) / Math.sqrt(width), Math.sqrt(this.eps))
      for (let d = 0; d < width; d++) made[i * width + d] = x[i * width + d] * scale * factors[d]
    }
    return made
  }

  length(x, i) {
    let sum = 0
    for (let d = i * this.width; d < (i + 1) * this.width; d++) sum += x[d] * x[d]
    return Math.sqrt(sum)
  }

  embedded(tokens) {
    const { k, at } = this.matrices["token_embd.weight"]
    const [bytes, made] = [new Int8Array(this.memory.buffer), new Float32Array(tokens.length * k)]
    tokens.forEach((token, i) => {
      for (let d = 0; d < k; d++) {
        const block = at + (token * k + d >> 5) * ROW[8]
        made[i * k + d] = bytes[block + d % 32] * this.numbers[(block + 32) / 4]
      }
    })
    return made
  }

  /** Turn each pair of features of each head by its position's angle. */
  turn(x, n, first, heads) {
    const D = this.size
    for (let i = 0; i < n; i++)
      for (let h = 0; h < heads; h++)
        for (let d = 0; d < D; d += 2) {
          const at = (i * heads + h) * D + d
          const [cos, sin] = [this.turns[(first + i) * D + d], this.turns[(first + i) * D + d + 1]]
          const [one, other] = [x[at], x[at + 1]]
          x[at] = one * cos - other * sin
          x[at + 1] = one * sin + other * cos
        }
    return x
  }

  /** A run over tokens: empty, until `advance` fills it. */
  begin(tokens) {
    const rows = width => Array.from({ length: this.layers }, () => new Float32Array(LONGEST * width))
    const kv = this.groups * this.size
    return {
      tokens: [...tokens], rows: 0, streams: [...rows(this.width), new Float32Array(LONGEST * this.width)],
      keys: rows(kv), values: rows(kv), heads: rows(this.width), mlps: rows(this.width),
      maps: rows(this.heads * LONGEST), logits: [],
    }
  }

  /**
   * Compute the rows of a run that are still to come.
   *
   * @param edit what is done to it: see `Edit`; nothing by default.
   */
  advance(run, edit = null) {
    const [first, n] = [run.rows, run.tokens.length - run.rows]
    if (run.tokens.length > LONGEST) throw new RangeError(`${run.tokens.length} tokens`)
    const from = run.from ?? 0
    const x = from ? run.streams[from].slice(first * this.width, (first + n) * this.width) : this.embedded(run.tokens.slice(first))
    for (let layer = from; layer < this.layers; layer++) {
      edit?.stream(layer, x, first, n)
      run.streams[layer].set(x, first * this.width)
      this.attend(run, layer, x, first, n, edit)
      this.add(run, layer, x, first, n, edit)
    }
    edit?.stream(this.layers, x, first, n)
    run.streams[this.layers].set(x, first * this.width)
    this.read(run, x, first, n)
    run.rows = run.tokens.length
    return run
  }

  /** The logits of a run's new rows; of a run that is asked for one position, these alone. */
  read(run, x, first, n) {
    const [begin, count] = run.only === undefined ? [first, n] : [run.only, 1]
    const rows = x.subarray((begin - first) * this.width)
    const logits = this.times(this.normed(rows, count, "output_norm.weight"), count, "token_embd.weight")
    for (let i = 0; i < count; i++) run.logits[begin + i] = logits.slice(i * this.vocabulary, (i + 1) * this.vocabulary)
  }

  /**
   * A finished run anew, with an edit: layers and positions in front of its first place are taken from the run.
   *
   * @param only the one position whose logits are wanted; all by default.
   */
  edited(base, edit, only) {
    const [from, row] = [Math.min(edit.first(), this.layers), Math.min(edit.row(), only ?? Infinity)]
    const anew = rows => rows.map((each, layer) => (layer < from ? each : each.slice()))
    const run = { tokens: [...base.tokens], rows: row, from, only, logits: base.logits.slice(0, row) }
    for (const name of ["streams", "keys", "values", "heads", "mlps", "maps"]) run[name] = anew(base[name])
    return this.advance(run, edit)
  }

  /** Queries, keys and values that a layer makes of the stream in front of it, in rows from a position on. */
  projected(layer, x, first, n) {
    const name = part => `blk.${layer}.attn_${part}.weight`
    const normed = this.normed(x, n, name("norm"))
    const made = part => this.times(normed, n, name(part)).slice()
    return { query: this.turn(made("q"), n, first, this.heads), key: this.turn(made("k"), n, first, this.groups), value: made("v") }
  }

  attend(run, layer, x, first, n, edit) {
    const [D, H, W] = [this.size, this.heads, this.width]
    const KV = this.groups * D
    const { query, key, value } = this.projected(layer, x, first, n)
    run.keys[layer].set(key, first * KV)
    run.values[layer].set(value, first * KV)
    const made = run.heads[layer]
    for (let h = 0; h < H; h++) {
      const group = Math.floor(h / (H / this.groups)) * D
      const own = {  // where a head's own rows stand
        query: { x: query, at: h * D, width: W },
        key: { x: run.keys[layer], at: group, width: KV },
        value: { x: run.values[layer], at: group, width: KV },
      }
      edit?.operands(layer, h, own, first, n, D)
      const [{ x: q, at: q0, width: qw }, { x: k, at: k0, width: kw }, { x: v, at: v0, width: vw }] = [own.query, own.key, own.value]
      for (let i = 0; i < n; i++) {
        const at = (h * LONGEST + first + i) * LONGEST
        const weights = run.maps[layer].subarray(at, at + first + i + 1)
        for (let j = 0; j <= first + i; j++) {
          let score = 0
          for (let d = 0; d < D; d++) score += q[i * qw + q0 + d] * k[j * kw + k0 + d]
          weights[j] = score / Math.sqrt(D)
        }
        softmax(weights)
        for (let d = 0; d < D; d++) {
          let mixed = 0
          for (let j = 0; j <= first + i; j++) mixed += weights[j] * v[j * vw + v0 + d]
          made[(first + i) * W + h * D + d] = mixed
        }
      }
    }
    edit?.heads(layer, run, first, n, D)
    const added = this.times(made.subarray(first * W, (first + n) * W), n, `blk.${layer}.attn_output.weight`)
    for (let d = 0; d < n * W; d++) x[d] += added[d]
  }

  add(run, layer, x, first, n, edit) {
    const name = part => `blk.${layer}.ffn_${part}.weight`
    const normed = this.normed(x, n, name("norm"))
    const gate = this.times(normed, n, name("gate")).slice()
    const inner = this.times(normed, n, name("up"))
    for (let d = 0; d < gate.length; d++) gate[d] *= inner[d] / (1 + Math.exp(-gate[d]))
    run.mlps[layer].set(this.times(gate, n, name("down")), first * this.width)
    edit?.mlps(layer, run, first, n)
    for (let d = 0; d < n * this.width; d++) x[d] += run.mlps[layer][first * this.width + d]
  }

  /**
   * What each head adds to the logit of a token at a position, directly: the norm at the end is held as it is there.
   * The sum over heads, MLPs and the embedding is the logit. With a rival: to both logits' difference.
   */
  direct(run, position, token, rival = null) {
    const W = this.width
    const stream = run.streams[this.layers].subarray(position * W, (position + 1) * W)
    const scale = 1 / Math.sqrt((this.length(stream, 0) ** 2) / W + this.eps)
    const [one, other] = [this.embedded([token]), rival === null ? null : this.embedded([rival])]
    const wanted = one.map((x, d) => (x - (other?.[d] ?? 0)) * this.norms["output_norm.weight"][d] * scale)
    const found = new Float32Array(this.layers * this.heads)
    const alone = new Float32Array(this.heads * W)
    for (let layer = 0; layer < this.layers; layer++) {
      alone.fill(0)
      for (let h = 0; h < this.heads; h++) {
        const at = position * W + h * this.size
        alone.set(run.heads[layer].subarray(at, at + this.size), h * W + h * this.size)
      }
      const added = this.times(alone, this.heads, `blk.${layer}.attn_output.weight`)
      for (let h = 0; h < this.heads; h++)
        for (let d = 0; d < W; d++) found[layer * this.heads + h] += added[h * W + d] * wanted[d]
    }
    return found
  }

  /** Minus the logarithm of the chance of each token but the first, in nats. */
  losses(run) {
    return run.tokens.slice(1).map((token, i) => logSum(run.logits[i]) - run.logits[i][token])
  }
}

function softmax(x) {
  const most = x.reduce((a, b) => Math.max(a, b))
  let sum = 0
  for (let i = 0; i < x.length; i++) sum += x[i] = Math.exp(x[i] - most)
  for (let i = 0; i < x.length; i++) x[i] /= sum
}

export function logSum(x) {
  let most = -Infinity
  for (const each of x) if (each > most) most = each
  let sum = 0
  for (const each of x) sum += Math.exp(each - most)
  return most + Math.log(sum)
}
