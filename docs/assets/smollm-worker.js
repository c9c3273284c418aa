// SmolLM2 in a worker of its own, so that nothing freezes while it computes. It is asked by name; every answer carries the
// number of its question. A long work is done in steps, between which it hears that it isn't wanted any more.

import { Edit } from "./smollm-edit.js"
import { LONGEST, Model, logSum } from "./smollm-model.js"

const KEPT = "mhattn-model"
let model = null
let base = null  // the last run of the text itself
let other = null  // the last run of a second text
let last = null  // the last cut of the text, whole

/** A part of the file, kept by the browser under its address, which has its hash. */
async function part(url, hash, tell) {
  const store = await self.caches?.open(KEPT).catch(() => null)
  const there = await store?.match(url)
  const answer = there ?? await fetch(url)
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`)
  const [bytes, pieces] = [[], answer.body.getReader()]
  for (;;) {
    const { done, value } = await pieces.read()
    if (done) break
    bytes.push(value)
    tell(value.length)
  }
  const whole = await new Blob(bytes).arrayBuffer()
  const found = self.crypto?.subtle && [...new Uint8Array(await crypto.subtle.digest("SHA-256", whole))].map(x => x.toString(16).padStart(2, "0")).join("")
  if (found && found !== hash) {
    await store?.delete(url)
    throw new Error(`${url}: not what it was`)
  }
  if (store && !there) await store.put(url, new Response(whole)).catch(() => null)
  return new Uint8Array(whole)
}

const functions = {
  async load({ parts, product, bytes }) {
    const whole = new Uint8Array(bytes)
    let at = 0
    let arrived = 0
    for (const { url, hash } of parts) {
      const found = await part(url, hash, more => self.postMessage({ arrived: arrived += more }))
      whole.set(found, at)
      at += found.length
    }
    model = await Model.from(whole.buffer, await (await fetch(product)).arrayBuffer())
    const { layers, heads, groups } = model
    return { layers, heads, group: heads / groups, longest: LONGEST, vocabulary: model.vocabulary }
  },

  /** The text's tokens as they are read, and everything about the run of all heads. */
  run({ text, start, second }) {
    const encoded = x => [...start ? [model.tokens.start] : [], ...model.tokens.encode(x)]
    const numbers = encoded(text)
    if (numbers.length > LONGEST || numbers.length < 2) return { count: numbers.length, tokens: null }
    last = null
    base = model.advance(model.begin(numbers))
    const there = second ? encoded(second) : []
    other = there.length === numbers.length ? model.advance(model.begin(there)) : null
    return { ...shown(base), count: numbers.length, second: there.length, other: other && { tokens: pieces(there), maps: mapsOf(other) } }
  },

  /** The same with heads or MLPs cut: what comes next, and the losses. */
  cut({ cut }) {
    return told(cutRun(cut))
  },

  /** What each head adds to the logit of an answer, or to its difference from a rival's. */
  direct({ position, tokens: [answer, rival = null] }) {
    return [...model.direct(base, position, answer, rival)]
  },

  /** One token more, the likeliest one, with what is cut. */
  write({ cut }) {
    const run = cut.length ? cutRun(cut) : base
    const logits = run.logits.at(-1)
    return model.tokens.decode([...base.tokens, logits.indexOf(Math.max(...logits))])
  },

  /** Of some tokens at a position, after a cut: logits and chances. */
  measure({ cut, position, tokens }) {
    return measured(cutRun(cut, position), position, tokens)
  },

  /** The same of the second text. */
  second({ position, tokens }) {
    return measured(other, position, tokens)
  },

  /** The likeliest token of the second text. */
  secondBest({ position }) {
    const logits = other.logits[position]
    return logits.reduce((best, x, i) => (x > logits[best] ? i : best), 0)
  },

  /** The first tokens of a word, behind a blank and without one. */
  tokensOf({ word }) {
    return [...new Set([` ${word.trim()}`, word.trim()].flatMap(each => model.tokens.encode(each).slice(0, 1)))]
  },
}

function measured(run, position, tokens) {
  const logits = run.logits[position]
  const sum = logSum(logits)
  return { names: pieces(tokens), logits: tokens.map(token => logits[token]), chances: tokens.map(token => Math.exp(logits[token] - sum)) }
}

/** The text with a cut: whole, or, where one position's logits are all that is asked for, these. */
function cutRun(cut, only) {
  if (!cut.length) return base
  const name = JSON.stringify(cut)
  if (last?.name === name) return last.run
  const run = model.edited(base, new Edit(cut, model, base, other), only)
  if (only === undefined) last = { name, run }
  return run
}

/** Tokens as people read them: a blank in front is a sign of its own, as is a new line; a part of a letter shows its bytes. */
const pieces = numbers => numbers.map(number => {
  const read = model.tokens.decode([number])
  const hex = () => [...model.tokens.bytes(number)].map(byte => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ")
  return read.includes("\uFFFD") ? `⟨${hex()}⟩` : read.replace(/ /g, "▁").replaceAll("\n", "↵")
})

/** The maps without the room behind the text. */
function mapsOf(run) {
  const L = run.tokens.length
  return run.maps.map(layer => {
    const kept = new Float32Array(model.heads * L * L)
    for (let h = 0; h < model.heads; h++)
      for (let i = 0; i < L; i++) kept.set(layer.subarray((h * LONGEST + i) * LONGEST, (h * LONGEST + i) * LONGEST + L), (h * L + i) * L)
    return kept
  })
}

const shown = run => ({ tokens: pieces(run.tokens), numbers: run.tokens, maps: mapsOf(run), ...told(run) })

/** At each position the likeliest tokens with their chances, the chance of the token that comes; losses. */
function told(run) {
  const next = run.logits.map(logits => {
    const sum = logSum(logits)
    const best = []
    for (let each = 0; each < 8; each++) {
      let most = -1
      for (let i = 0; i < logits.length; i++)
        if (!best.includes(i) && (most < 0 || logits[i] > logits[most])) most = i
      best.push(most)
    }
    return best.map(i => [i, pieces([i])[0], Math.exp(logits[i] - sum)])
  })
  return { next, losses: model.losses(run) }
}

self.addEventListener("message", async ({ data: { number, name, given } }) => {
  try {
    self.postMessage({ number, answer: await functions[name](given) })
  } catch (error) {
    self.postMessage({ number, failed: String(error.message ?? error) })
  }
})
