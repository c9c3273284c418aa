// The model of a page without a browser: questions as lines of JSON, their answers as lines of JSON.
// Of a question {text, cut, other, direct …}: the tokens, the last position's logits in base64, losses, all heads' maps.
import { readFileSync } from "node:fs"
import { createInterface } from "node:readline"
import { Edit } from "./smollm-edit.js"
import { LONGEST, Model } from "./smollm-model.js"
import { PATTERNS, placesOf, shares } from "./head-statistics.js"

const [file, product] = process.argv.slice(2)
const bytes = readFileSync(file)
const whole = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)
const model = await Model.from(whole, readFileSync(product))
const packed = x => Buffer.from(Float32Array.from(x).buffer).toString("base64")

function answer({ texts, text, cut, other, direct, rival, share, grow, only }) {
  if (texts) return { tokens: texts.map(each => model.tokens.encode(each)), back: texts.map(each => model.tokens.decode(model.tokens.encode(each))) }
  const tokens = model.tokens.encode(text)
  const run = model.advance(model.begin(grow ? tokens.slice(0, grow) : tokens))
  for (let i = grow ?? tokens.length; i < tokens.length; i++) {  // one by one, as it writes
    run.tokens.push(tokens[i])
    model.advance(run)
  }
  const second = other ? model.advance(model.begin(model.tokens.encode(other))) : null
  const now = cut ? model.edited(run, new Edit(cut, model, run, second), only) : run
  const L = tokens.length
  const row = (head, i) => {
    const at = ((head % model.heads) * LONGEST + i) * LONGEST
    return now.maps[Math.floor(head / model.heads)].subarray(at, at + i + 1)
  }
  const told = { tokens, logits: packed(now.logits.at(-1)), losses: only === undefined ? model.losses(now) : null }
  told.maps = packed(Array.from({ length: model.layers * model.heads }, (_, head) =>
    Array.from({ length: L }, (_, i) => [...row(head, i), ...Array(L - i - 1).fill(0)])).flat(2))
  if (direct !== undefined) told.direct = packed(model.direct(run, L - 1, direct, rival))
  if (share) told.share = packed(shares(placesOf(tokens, PATTERNS[share]), model.layers * model.heads, row))
  return told
}

for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(answer(JSON.parse(line))))
