// The worker behind the search field: Material's messages, our own index, which is fetched in parts when
// the field is touched. Words that no page has are left out of the query; Chinese is read in pairs of signs.

const [SETUP, READY, QUERY, RESULT, WARM, BUSY, FAILED] = [0, 1, 2, 3, 4, 5, 6] // Material knows the first four
const WORDS = /\p{sc=Han}+|(?:(?!\p{sc=Han})[\p{L}\p{N}_])+(?:[.'’-](?:(?!\p{sc=Han})[\p{L}\p{N}_])+)*/gu
const PARTS = /[._'’-]+|(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/u // MultiheadAttention, batch_first
const HAN = /^\p{sc=Han}/u
const ENDING = /(?:i[sz]ations?|i[sz](?:ing|ed|es?)|ations?|ings?|edly|ed|ies|es|s|ly|e|y)$/

const lower = text => text.toLowerCase()
const stem = word => {
  const cut = word.replace(ENDING, "")
  return (cut.length > 2 && /[a-z]$/.test(cut) ? cut : word).replace(/([b-df-hj-km-np-rtv-z])\1$/, "$1")
}

// What says nothing of the subject or little, and what readers call the same: docs/data/search.toml, beside the index.
const SAME = new Map()
let EMPTY, WEAK, EMPTY_HAN, WEAK_HAN
function learn({ empty, weak, empty_han, weak_han, same }) {
  EMPTY = new Set(empty)
  WEAK = new Set(weak.map(stem))
  EMPTY_HAN = RegExp(empty_han.join("|"), "g")
  WEAK_HAN = RegExp(`[${weak_han}]`)
  for (const group of same) {
    const words = group.match(WORDS).map(word => (HAN.test(word) ? word : stem(word)))
    for (const word of words) SAME.set(word, new Set([...(SAME.get(word) ?? []), ...words]))
  }
}
const ALIKE = 0.5 // how surely one stands for the other

/** Pairs of neighbouring signs, or the only sign. */
const pairs = run => (run.length < 2 ? [run] : [...run].slice(1).map((sign, i) => [...run][i] + sign))

const segmenter = globalThis.Intl?.Segmenter && new Intl.Segmenter("zh", { granularity: "word" })

/** The pairs of neighbouring signs of which one ends a word and the other begins the next: they say little. */
function between(run) {
  const ends = segmenter ? [...segmenter.segment(run)].map(({ index }) => index).slice(1) : []
  const inside = new Set(pairs(run).filter((_, i) => !ends.includes(i + 1)))
  return new Set(ends.map(end => run.slice(end - 1, end + 1)).filter(pair => !inside.has(pair)))
}

const known = new Map() // how words were read

/** What the index knows a word by: its parts, the whole first, if it has several; pairs of Chinese signs. */
function parts(word) {
  if (HAN.test(word)) return pairs(word)
  if (!known.has(word)) {
    const each = word.split(PARTS).filter(Boolean)
    known.set(word, [...(each.length > 1 ? [each.join("")] : []), ...each].map(part => stem(lower(part))))
  }
  return known.get(word)
}

const plain = text => text.normalize("NFKC").replace(/[\u2010-\u2015\u2212]/g, "-").replace(/(?<=\d),(?=\d{3}(?!\d))/g, "")

/** The words of a text without those that say nothing; all of them, if none is left. */
function telling(text) {
  const words = [...plain(text).replace(EMPTY_HAN, " ").matchAll(WORDS)].map(([word]) => word).filter(word => !EMPTY.has(lower(word)))
  return words.length ? words : [...plain(text).matchAll(WORDS)].map(([word]) => word)
}

/** All that the index knows a text by. */
function read(text) {
  const found = []
  for (const [word] of plain(text).matchAll(WORDS)) {
    for (const part of parts(word)) found.push(part)
    if (HAN.test(word) && word.length > 1) found.push(...word)
  }
  return found
}

/** A title without what stands behind its colon. */
const short = title => title.split(/[:：（(]/)[0]

/** Letters and digits alone. */
const signs = text => lower(plain(text)).replace(/[^\p{L}\p{N}]/gu, "")

/** A name without the single signs that it is written in. */
const pieces = text => [...new Set(telling(text).flatMap(parts))]

let setup, loading, index
let newest = 0

class Index {
  constructor(documents) {
    this.documents = documents
    this.postings = new Map() // word: [document, times in title and names, times in text, ...]
    const titles = new Map()
    for (const { title } of documents) titles.set(title, (titles.get(title) ?? 0) + 1)
    const common = title => titles.get(title) > 3 // "Traps" says nothing of a page
    this.names = documents.map(({ title, tags = [] }) => {
      const own = common(title) ? [] : [title, short(title)]
      return [...new Set([...own, ...tags])].map((name, n) => ({ words: pieces(name), weight: n < own.length ? 1.3 : 1 }))
    })
    this.lengths = documents.map((each, number) => this.add(each, number))
    this.mean = this.lengths.reduce((sum, length) => sum + length, 0) / documents.length
    this.vocabulary = [...this.postings.keys()].sort()
    this.pages = documents.map(({ location }) => location.split("#")[0])
    this.heads = new Map(documents.map((each, number) => [each.location, number]))
  }

  add({ title, text, tags = [] }, number) {
    const times = new Map()
    const count = (word, place) => {
      if (!times.has(word)) times.set(word, [0, 0])
      times.get(word)[place] += 1
    }
    for (const word of read(title)) count(word, 0)
    for (const tag of tags) for (const word of new Set(read(tag))) count(word, 0)
    let length = 0
    for (const word of read(text)) { count(word, 1); length += 1 }
    for (const [word, [named, said]] of times) {
      if (!this.postings.has(word)) this.postings.set(word, [])
      this.postings.get(word).push(number, named, said)
    }
    return length
  }

  rarity(word) {
    const count = (this.postings.get(word)?.length ?? 0) / 3
    return Math.log(1 + (this.documents.length - count + 0.5) / (count + 0.5))
  }

  /** The words of the index that start like this one. */
  starting(start) {
    let [low, high] = [0, this.vocabulary.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.vocabulary[middle] < start) low = middle + 1
      else high = middle
    }
    const found = []
    while (this.vocabulary[low]?.startsWith(start) && found.length < 40) found.push(this.vocabulary[low++])
    return found
  }

  /** What a word of the query may stand for, and how surely: nothing if no page has it. */
  meant(word) {
    const found = this.written(word)
    for (const other of SAME.get(word) ?? []) if (this.postings.has(other) && !(found.get(other) > ALIKE)) found.set(other, ALIKE)
    return found
  }

  /** The same, without what is called otherwise. */
  written(word) {
    const found = new Map()
    if (this.postings.has(word)) found.set(word, 1)
    if (HAN.test(word)) {
      if (!found.size) for (const sign of word) if (this.postings.has(sign)) found.set(sign, 0.3)
      return found
    }
    if (word.length > 2 || !found.size)
      for (const longer of this.starting(word)) if (!found.has(longer)) found.set(longer, 0.6 * word.length / longer.length)
    if (found.size || word.length < 4) return found
    if (word.length > 4) for (const other of this.vocabulary) if (near(word, other)) found.set(other, 0.9)
    for (let i = 2; !found.size && i < word.length - 1; i++) {
      const both = [word.slice(0, i), word.slice(i)].map(stem)
      if (both.every(part => this.postings.has(part))) for (const part of both) found.set(part, 0.7)
    }
    return found
  }

  search(query) {
    const { words, unknown } = this.asked(query)
    if (!words.length) return []
    const scores = new Map(), whole = new Map()
    const all = words.reduce((sum, word) => sum + word.rarity, 0)
    for (const [w, { meant, rarity }] of words.entries())
      for (const [word, sure] of meant) {
        const list = this.postings.get(word)
        for (let i = 0; i < list.length; i += 3) {
          const length = 0.4 + 0.6 * this.lengths[list[i]] / this.mean
          const times = 4 * Math.min(list[i + 1], 2) + list[i + 2] / length
          const score = sure * rarity * times / (times + 1.5)
          keepMost(scores, list[i], w, score, words.length)
          keepMost(whole, this.pages[list[i]], w, score, words.length)
        }
      }
    const hits = [...scores].map(([number, parts]) => ({
      number, score: this.weighed(parts, words, all) + this.named(number, words, all), parts,
    }))
    const asked = signs(query)
    for (const hit of hits) {
      const { location, title, boost = 1 } = this.documents[hit.number]
      const page = !location.includes("#")
      hit.score *= boost * (page ? 1.3 : 1) // a page comes before its sections
      if (page) hit.score += signs(title) === asked ? 2000 : signs(short(title)) === asked ? 1000 : 0
    }
    return this.grouped(hits, page => 0.6 * this.weighed(whole.get(page), words, all), words, unknown)
  }

  /** What is found counts the more the more of the query it is. */
  weighed(parts, words, all) {
    const covered = words.reduce((sum, { rarity }, w) => sum + (parts[w] ? rarity : 0), 0) / all
    return parts.reduce((sum, part) => sum + part, 0) * covered
  }

  /** A title or another name that is the query, or stands in it. */
  named(number, words, all) {
    let best = 0
    for (const { words: name, weight } of this.names[number]) {
      let [both, own] = [0, 0]
      for (const each of name) {
        own += this.rarity(each)
        const same = words.find(({ meant }) => (meant.get(each) ?? 0) > 0.45)
        if (same) both += same.rarity * same.meant.get(each)
      }
      if (!both) continue
      const share = Math.min(1, both / own) ** 2.3 * Math.min(1, both / all)
      best = Math.max(best, share * weight)
    }
    return all * best
  }

  /** The words of a query, what each may mean and how much it says, and those that no page has. */
  asked(query) {
    const words = new Map(), unknown = []
    for (const word of telling(query)) {
      const [whole, ...others] = HAN.test(word) ? [] : parts(word)
      const known = this.postings.has(whole), loose = HAN.test(word) ? between(word) : new Set()
      for (const part of parts(word)) {
        if (others.length && part === whole && !known) continue
        const meant = this.meant(part)
        const says = others.length && known && part !== whole ? 0.3 : WEAK.has(part) ? 0.35 : HAN.test(part) && WEAK_HAN.test(part) ? 0.25 : loose.has(part) ? 0.5 : 1
        const rarity = says * Math.max(...[...meant].map(([each, sure]) => sure * this.rarity(each)))
        const typed = HAN.test(word) || others.length ? part : word // what is missing is shown as it was written
        if (meant.size) words.set(part, { word: part, typed, meant, rarity: HAN.test(part) ? Math.min(rarity, 5) : rarity })
        else unknown.push(typed)
      }
    }
    const letters = [...words.keys()].filter(word => /^[a-z]$/.test(word)) // one says little, but "q k v"
    const long = [...words.values()].filter(({ word }) => !(letters.length > 1 ? /^[0-9]$/ : /^[a-z0-9]$/).test(word))
    return { words: long.length ? long : [...words.values()], unknown }
  }

  /** Hits by page, the best first, in the form that Material shows. */
  grouped(hits, more, words, unknown) {
    const pages = new Map()
    for (const hit of hits) {
      const page = this.pages[hit.number]
      if (!pages.has(page)) pages.set(page, [])
      pages.get(page).push(hit)
    }
    const order = [...pages].map(([page, found]) => {
      found.sort((a, b) => b.score - a.score)
      return { page, found, score: found[0].score + more(page) * (this.documents[found[0].number].boost ?? 1) }
    })
    order.sort((a, b) => b.score - a.score)
    return order.slice(0, 50).map(({ page, found }, place) => {
      const head = this.heads.get(page)
      if (!found.some(({ number }) => number === head)) found.push({ number: head, score: 0, parts: [] })
      // Material shows what scores no less than the first of its page, and folds the others away.
      const sections = found.filter(({ number }) => number !== head), first = found[0].score, best = sections[0]?.score
      for (const [n, hit] of sections.entries())
        hit.score = n < (place ? 1 : 3) && hit.score > best / 5 ? first : Math.min(hit.score, 0.999 * first)
      return found.slice(0, 8).concat(found.slice(8).filter(({ number }) => number === head))
        .map(hit => this.shown(hit, words, unknown))
    })
  }

  shown({ number, score, parts }, words, unknown) {
    const { location, title, text } = this.documents[number]
    const marked = words.flatMap(({ meant }) => [...meant].filter(([, sure]) => sure > 0.4).map(([word]) => word))
    const terms = Object.fromEntries(words.map(({ typed }, w) => [typed, Boolean(parts[w])]))
    for (const word of unknown) terms[word] = false
    return { location, title: mark(title, marked), text: mark(excerpt(text, marked), marked), score, terms }
  }
}

function keepMost(scores, key, word, score, count) {
  if (!scores.has(key)) scores.set(key, new Array(count).fill(0))
  const parts = scores.get(key)
  parts[word] = Math.max(parts[word], score)
}

/** One letter more, less or other, or two exchanged. */
function near(one, other) {
  if (Math.abs(one.length - other.length) > 1 || one[0] !== other[0]) return false
  let i = 0
  while (i < one.length && one[i] === other[i]) i++
  const [a, b] = [one.slice(i), other.slice(i)]
  return a.slice(1) === b || a === b.slice(1) || a.slice(1) === b.slice(1) ||
    (a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2))
}

const escaped = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;")
const pattern = words =>
  new RegExp(words.map(word => (HAN.test(word) ? word : `(?<![a-z0-9])${word.replace(/\W/g, "")}[a-z0-9]*`)).join("|") || "(?!)", "giu")

const mark = (text, words) =>
  escaped(text).replace(pattern(words), found => `<mark>${found}</mark>`).replace(/<\/mark><mark>/g, "")

/** The piece of a text where most of these words stand. */
function excerpt(text, words, length = 150) {
  if (text.length <= length) return text
  const places = [...text.matchAll(pattern(words))].map(({ index }) => index)
  let [best, most] = [0, 0]
  for (const [i, place] of places.entries()) {
    const count = places.slice(i).filter(other => other < place + length * 0.8).length
    if (count > most) [best, most] = [place, count]
  }
  const start = best < 60 ? 0 : Math.max(0, text.lastIndexOf(" ", best - 40))
  return (start ? "… " : "") + text.slice(start, start + length).trim() + (start + length < text.length ? " …" : "")
}

async function load() {
  const [words, ...parts] = await Promise.all(["words.json", ...setup.config.parts].map(async part => {
    const answer = await fetch(new URL(`../../../search/${part}`, location.href))
    if (!answer.ok) throw Error(answer.statusText)
    return answer.json()
  }))
  learn(words)
  index = new Index(parts.flat())
}

/** Load once; whether it is there. What failed is tried again when it is wanted again. */
async function loaded() {
  try {
    await (loading ??= load())
  } catch {
    loading = null
  }
  return Boolean(index)
}

addEventListener("message", async ({ data: { type, data } }) => {
  if (type === SETUP) {
    setup = data
    postMessage({ type: READY })
  } else if (type === WARM) {
    loaded()
  } else {
    const mine = ++newest
    const query = data.trim()
    if (query && !index) {
      postMessage({ type: BUSY })
      if (!(await loaded())) return postMessage({ type: FAILED })
    }
    if (mine === newest) postMessage({ type: RESULT, data: { items: query ? index.search(query) : [] } })
  }
})
