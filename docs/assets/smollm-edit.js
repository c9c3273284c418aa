// What is done to a run of the model in smollm-model.js: parts are cut, or come from another run of as many tokens.

/** Where a path ends if no head is named: what is added to the output itself. */
export const OUTPUT = null

/**
 * An edit, from a list of:
 * - `{ layer, head, as }` or `{ layer, mlp: true, as }`: what it gives is "zero", its "mean" over the text, or that of the run `other`;
 * - `{ layer, head, as: "query" | "key" | "value" }`: it reads these of the other run; heads that share them keep theirs;
 * - `{ layer, head, as: "path", to }`: what it gives in the other run reaches `to` alone, `{ layer, head, part }` or OUTPUT: all
 *   heads and MLPs between keep what they gave;
 * - `{ layer, stream: position, as: "other" }`: the stream in front of the layer.
 *
 * With `at`, a position, only there. `base` is the finished run that is edited.
 */
export class Edit {
  constructor(list, model, base, other = null) {
    Object.assign(this, { model, base, other })
    const [paths, rest] = [list.filter(({ as }) => as === "path"), list.filter(({ as }) => as !== "path")]
    this.outputs = rest.filter(({ head, as, mlp }) => mlp || (head !== undefined && !PARTS.includes(as)))
    this.streams = rest.filter(({ stream }) => stream !== undefined).map(each => ({ ...each, at: each.stream, from: this.other.streams[each.layer] }))
    this.parts = rest.filter(({ as }) => PARTS.includes(as)).map(each => ({ ...each, part: each.as, from: this.projected(each.layer, other.streams[each.layer]) }))
    const ends = new Map(paths.map(each => [JSON.stringify(each.to ?? OUTPUT), each.to ?? OUTPUT]))
    for (const [name, to] of ends) this.along(paths.filter(each => JSON.stringify(each.to ?? OUTPUT) === name), to)
  }

  /** The first layer that computes anything else; behind the last one, if only the output does. */
  first() {
    return Math.min(...[...this.outputs, ...this.streams, ...this.parts].map(({ layer }) => layer))
  }

  /** The first position that can change: where both texts are equal so far, what comes from the other one isn't new. */
  row() {
    if (this.outputs.some(({ as = "zero" }) => as !== "other")) return 0
    const { tokens } = this.base
    const differs = tokens.findIndex((token, i) => token !== this.other.tokens[i])
    if (differs < 0) return tokens.length - 1
    const places = [...this.outputs, ...this.streams, ...this.parts].map(({ at = differs }) => at).filter(at => at >= differs)
    return Math.min(tokens.length - 1, ...places)
  }

  projected(layer, stream) {
    const n = this.base.tokens.length
    return this.model.projected(layer, stream.subarray(0, n * this.model.width), 0, n)
  }

  /** What some heads give in the other run reaches one end, over the stream alone. */
  along(senders, to) {
    const { model, base, other } = this
    const [n, W, D] = [base.tokens.length, model.width, model.size]
    const layer = to?.layer ?? model.layers
    if (senders.some(each => each.layer >= layer)) throw new RangeError("a path leads to a later layer")
    const stream = base.streams[layer].slice()
    for (const { layer: from, head, at } of senders) {
      const moved = new Float32Array(n * W)
      for (let i = 0; i < n; i++)
        for (let d = head * D; d < (head + 1) * D && (at ?? i) === i; d++)
          moved[i * W + d] = other.heads[from][i * W + d] - base.heads[from][i * W + d]
      const added = model.times(moved, n, `blk.${from}.attn_output.weight`)
      for (let d = 0; d < n * W; d++) stream[d] += added[d]
    }
    if (to) this.parts.push({ layer, head: to.head, part: to.part, from: this.projected(layer, stream) })
    else this.streams.push({ layer, from: stream })
  }

  stream(layer, x, first, n) {
    const width = x.length / n
    for (const { layer: to, at, from } of this.streams)
      for (let i = first; i < first + n; i++)
        if (to === layer && (at ?? i) === i) x.set(from.subarray(i * width, (i + 1) * width), (i - first) * width)
  }

  /** A head's query, key or value in rows of its own, some of them another run's. */
  operands(layer, head, own, first, n, D) {
    for (const { layer: to, head: h, part, at, from } of this.parts) {
      if (to !== layer || h !== head) continue
      const { x, at: place, width } = own[part]
      const [begin, count] = part === "query" ? [first, n] : [0, first + n]
      const rows = new Float32Array(count * D)
      for (let i = 0; i < count; i++) {
        const source = (at ?? begin + i) === begin + i ? [from[part], begin + i] : [x, i]
        rows.set(source[0].subarray(source[1] * width + place, source[1] * width + place + D), i * D)
      }
      own[part] = { x: rows, at: 0, width: D }
    }
  }

  heads(layer, run, first, n, D) {
    for (const each of this.outputs) if (each.layer === layer && !each.mlp) this.put("heads", each, run, first, n, each.head * D, D)
  }

  mlps(layer, run, first, n) {
    for (const each of this.outputs) if (each.layer === layer && each.mlp) this.put("mlps", each, run, first, n, 0, this.model.width)
  }

  put(kind, { layer, as = "zero", at }, run, first, n, from, size) {
    const [whole, width] = [run[kind][layer], this.model.width]
    for (let d = from; d < from + size; d++) {
      let mean = 0
      if (as === "mean") for (let i = 0; i < first + n; i++) mean += whole[i * width + d] / (first + n)
      for (let i = first; i < first + n; i++)
        if ((at ?? i) === i) whole[i * width + d] = as === "zero" ? 0 : as === "mean" ? mean : this.other[kind][layer][i * width + d]
    }
  }
}

const PARTS = ["query", "key", "value"]
