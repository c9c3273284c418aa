// How much of its attention a head gives to the keys of a pattern, as mhattn.inside.attention_share, under a causal mask, and
// what heads reach whose weights stand in random order.

/** Of each pattern, whether a query at i, which sees the keys up to its own, looks at key j. */
export const PATTERNS = {
  previous: (_, i, j) => j === i - 1,
  first: (_, i, j) => j === 0,
  induction: (tokens, i, j) => j > 0 && tokens[j - 1] === tokens[i],
  same: (tokens, i, j) => j !== i && tokens[j] === tokens[i],
}

/** The keys of each query that counts: it sees one of the pattern and another one besides. */
export function placesOf(tokens, pattern) {
  return tokens.flatMap((_, i) => {
    const keys = Array.from({ length: i + 1 }, (_, j) => j).filter(j => pattern(tokens, i, j))
    return keys.length && keys.length <= i ? [[i, keys]] : []
  })
}

/** The share of each head; NaN where no query counts. */
export const shares = (places, count, row) => Float64Array.from({ length: count }, (_, head) => {
  let sum = 0
  for (const [i, keys] of places) {
    const weights = row(head, i)
    for (const j of keys) sum += weights[j]
  }
  return sum / places.length
})

/** The lowest and the highest share of any head in some draws, each row's weights in random order. */
export function redrawn(places, count, row, draws = 19, next = Math.random) {
  let [low, high] = [Infinity, -Infinity]
  for (let draw = 0; draw < draws; draw++)
    for (let head = 0; head < count; head++) {
      let sum = 0
      for (const [i, keys] of places) {
        const weights = row(head, i)
        const left = Array.from({ length: i + 1 }, (_, j) => j)
        for (let k = 0; k < keys.length; k++) {  // as many as the pattern has, drawn without putting back
          const at = k + Math.floor(next() * (left.length - k))
          ;[left[k], left[at]] = [left[at], left[k]]
          sum += weights[left[k]]
        }
      }
      low = Math.min(low, sum / places.length)
      high = Math.max(high, sum / places.length)
    }
  return [low, high]
}
