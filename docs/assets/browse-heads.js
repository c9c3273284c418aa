// All heads of a model on a few sentences: a grid of small maps, one of them large, its statistics.
// The page's story writes about.json and a file for each sentence, which is fetched when it is chosen;
// tests/site/test_browse_heads.py compares what unpack() and inOrder() make of them with Python.

import { asked, element, filled, keep, mount, punctuation } from "./dom.js"
import { largeMap, nameOf, smallMaps } from "./head-maps.js"

const words = wordsOf("browse-heads")
const DATA = new URL("../data/browse-heads/", import.meta.url)
const PAIR = "pair" // sorts by the weight of one query and one key

/** What a sentence's file holds: its tokens, statistics of all heads, and their weights. */
export function unpack(buffer, { layers, heads, causal, statistics }) {
  const start = 4 + new DataView(buffer).getUint32(0, true)
  const { tokens, chance, pairs } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, start - 4)))
  const [count, L] = [layers * heads, tokens.length]
  const numbers = Object.keys(statistics).map((name, i) =>
    [name, new Float32Array(buffer, start + 4 * i * count, count)])
  const bytes = new Uint8Array(buffer, start + 4 * numbers.length * count)
  const size = causal ? L * (L + 1) / 2 : L * L
  const startOf = i => causal ? i * (i + 1) / 2 : i * L
  const row = (head, i) => {
    const from = head * size + startOf(i)
    return Array.from(bytes.subarray(from, from + (causal ? i + 1 : L)), whole => whole / 255)
  }
  const isSeen = (i, j) => !causal || j <= i
  /** What each head gives from query i to key j, and what redrawn heads give; undefined if the mask hides it. */
  const pair = (i, j) => isSeen(i, j) && {
    numbers: Float64Array.from({ length: count }, (_, head) => bytes[head * size + startOf(i) + j] / 255),
    range: pairs.map(limits => limits[startOf(i) + j] / 255),
  } || undefined
  return { tokens, chance, count, row, pair, statistics: Object.fromEntries(numbers) }
}

/** The heads, the one with the largest number first; without numbers by layer. */
export function inOrder(numbers, count) {
  const all = Array.from({ length: count }, (_, head) => head)
  return numbers ? all.sort((one, other) => numbers[other] - numbers[one] || one - other) : all
}

/** How many heads have a larger number, and one more. */
export const rankOf = (numbers, head) => 1 + numbers.filter(x => x > numbers[head]).length

const two = x => x.toFixed(2)
const known = numbers => numbers && !numbers.some(Number.isNaN)

async function get(file, kind) {
  const answer = await fetch(new URL(file, DATA))
  if (!answer.ok) throw new TypeError(`${file}: ${answer.status}`)
  return answer[kind]()
}

function show(place) {
  const button = element("button", words.open, { type: "button", className: "md-button" })
  place.replaceChildren(button)
  const open = () => {
    watcher.disconnect()
    button.replaceWith(element("p", words.loading))
    get("about.json", "json").then(about => withModel(place, about)).catch(error => fail(place, error))
  }
  const watcher = new IntersectionObserver(seen => seen.some(each => each.isIntersecting) && open(), { rootMargin: "600px" })
  watcher.observe(place)
  button.addEventListener("click", open)
}

function fail(place, error) {
  if (!(error instanceof TypeError || error instanceof SyntaxError)) throw error
  place.replaceChildren(element("p", words.missing, {}, { role: "alert" }))
}

/** The browser for the model that the address names, and anew when another one is chosen. */
function withModel(place, { models, statistics }) {
  const titles = Object.keys(models)
  const wanted = () => titles.find(title => title === asked().get("model")) ?? titles[0]
  let running = null
  function use(title) {
    running?.abort()
    running = new AbortController()
    return browse(place, { statistics, ...models[title] }, { titles, title, wanted, use }, running.signal)
  }
  return use(wanted())
}

function browse(place, about, model, signal) {
  const { layers, heads } = about
  const count = layers * heads
  const loaded = new Map()
  const state = {}
  let [data, order, awaited] = [null, [], ""]

  const select = (name, label, options) => {
    const made = element("select", options.map(([value, text]) => element("option", text, { value })), { name })
    return [made, element("label", [label, made])]
  }
  const counted = n => Array.from({ length: n }, (_, i) => [i, i + 1])
  const [which, whichLabel] = select("model", words.model, model.titles.map(title => [title, title]))
  which.value = model.title
  const [sentence, sentenceLabel] = select("sentence", about.start ? words.sentence : words.reaction, Object.entries(about.sentences))
  const [sort, sortLabel] = select("sort", words.sort, [["", words.layers], ...Object.entries(about.statistics), [PAIR, words.pair]])
  const [layer, layerLabel] = select("layer", words.layer, counted(layers))
  const [head, headLabel] = select("head", words.head, counted(heads))
  whichLabel.className = sentenceLabel.className = "mh-wide"
  sortLabel.className = "mh-half"
  const start = element("input", "", { type: "checkbox", name: "start" })
  const startLabel = element("label", [start, " ", filled(words.start, { sign: about.start?.sign })], { className: "mh-wide", hidden: !about.start })
  const form = element("form", [whichLabel, sentenceLabel, startLabel, sortLabel, layerLabel, headLabel])

  const grid = smallMaps(about, chosen => choose({ head: chosen }))
  const tokens = tokenRow("mh-tokens", word => choose({ word }), i => cell(state.word, i))
  const keys = tokenRow("mh-tokens mh-keys", key => choose({ key }), i => cell(state.word, i))
  const [asking, askingKey] = [element("p"), element("p", words.choose_key)]
  const map = largeMap((word, key) => choose({ word, key }), (i, j) => cell(i, j))
  const line = element("output", "", { className: "mh-cell" })
  const table = element("table", "", { className: "mh-table" })
  const said = element("p", "", { className: "mh-said" }, { "aria-live": "polite" })
  const limit = element("p")
  const panel = element("div", [said, asking, tokens, askingKey, keys, map.place, line], { className: "mh-panel" })
  const long = layers > 2 * heads // then there is no room for the table below the small maps
  if (long) panel.append(table)
  place.replaceChildren(form, limit, element("div", [grid.place, panel, ...(long ? [] : [table])], { className: "mh-browse" }))

  /** The state that the address asks for; what it leaves out, or what cannot be, is undefined. */
  function asks() {
    const query = asked()
    const [, l, h] = /^(\d+)\.(\d+)$/.exec(query.get("head")) ?? []
    const found = {}
    if (Object.hasOwn(about.sentences, query.get("sentence"))) found.sentence = query.get("sentence")
    if (Object.hasOwn(about.statistics, query.get("sort")) || query.get("sort") === PAIR) found.sort = query.get("sort")
    if (about.start && /^[01]$/.test(query.get("start"))) found.start = query.get("start") === "1"
    if (0 < l && l <= layers && 0 < h && h <= heads) found.head = (l - 1) * heads + (h - 1)
    if (/^[1-9]\d*$/.test(query.get("word"))) found.word = query.get("word") - 1
    if (/^[1-9]\d*$/.test(query.get("key")) && found.sort === PAIR) found.key = query.get("key") - 1
    return found
  }

  function write() {
    const { sentence, start, sort, head, word, key } = state
    keep({
      sentence, head: `${Math.floor(head / heads) + 1}.${head % heads + 1}`, word: word + 1, sort: sort || null,
      key: sort === PAIR ? key + 1 : null, start: start === about.start?.usual ? null : Number(start),
    })
  }

  async function restore() {
    if (model.wanted() !== model.title) return model.use(model.wanted())
    const { sentence = Object.keys(about.sentences)[0], start = about.start?.usual, sort = "", head, word, key } = asks()
    await load({ sentence, start, sort, head, word, key })
    if (asked().has("head") && head === undefined && data) write()  // there is no such head: the address says which one is shown
  }

  const fileOf = ({ sentence, start }) => `${sentence}${start === about.start?.usual ? "" : about.start.other}.bin`

  async function load(wanted) {
    const file = awaited = fileOf(wanted)
    try {
      if (!loaded.has(file)) loaded.set(file, unpack(await get(file, "arrayBuffer"), about))
    } catch (error) {
      return fail(place, error)
    }
    if (awaited !== file || signal.aborted) return // another one has been chosen meanwhile
    data = loaded.get(file)
    Object.assign(state, wanted)
    for (const option of sort.options)
      option.disabled = ![PAIR, ""].includes(option.value) && !known(data.statistics[option.value])
    update()
  }

  /** What the reader has changed; the address follows. */
  async function choose(change) {
    if ("sentence" in change) await load({ ...state, ...change, word: undefined, key: undefined })
    else if ("start" in change) await load({ ...state, ...change, ...shifted(change.start ? 1 : -1) })
    else update(change)
    write()
  }

  /** The same words, when a token in front comes or goes. */
  const shifted = by => Object.fromEntries(["word", "key"].map(name =>
    [name, state[name] + by < 0 ? undefined : state[name] + by]))

  function update(change = {}) {
    Object.assign(state, change)
    const last = data.tokens.length - 1
    if (state.sort !== PAIR && !known(data.statistics[state.sort])) state.sort = ""
    const paired = state.sort === PAIR
    if (!(state.word <= last)) state.word = data.tokens.findLastIndex(token => !about.marks.includes(token) && /[\p{L}\p{N}]/u.test(token))
    if (!(state.key <= last) || !paired && "word" in change && !("key" in change)) state.key = undefined
    if (paired && state.key === undefined) state.key = mostOf(data.row(state.head ?? firstHead(), state.word))
    const pair = paired ? data.pair(state.word, state.key) : undefined
    const numbers = paired ? pair?.numbers : data.statistics[state.sort]
    order = inOrder(numbers, count)
    if (paired && numbers && !("head" in change) && ("word" in change || "key" in change)) state.head = order[0]
    state.head ??= numbers ? order[0] : firstHead()
    const row = data.row(state.head, state.word)
    if (!paired && ("head" in change || state.key === undefined)) state.key = mostOf(row)

    sentence.value = state.sentence
    sort.value = state.sort
    start.checked = state.start
    layer.value = Math.floor(state.head / heads)
    head.value = state.head % heads
    grid.update(data, order, state, numbers, rangeOf(state.sort)?.[1])
    tell(numbers)
    showTokens(row)
    map.update(data, state)
    showNumbers()
    cell(state.word, state.key)
  }

  const mostOf = row => row.indexOf(Math.max(...row))
  const firstHead = () => inOrder(data.statistics[Object.keys(about.statistics)[0]], count)[0]

  /** The numbers of all heads by a statistic or of the chosen pair; what redrawn heads reach, if that is another range. */
  const numbersOf = name => name === PAIR ? data.pair(state.word, state.key)?.numbers : data.statistics[name]
  function rangeOf(name) {
    const range = name === PAIR ? data.pair(state.word, state.key)?.range : data.chance[name]
    return range && range[0] < range[1] ? range : undefined
  }
  const labelOf = name => name === PAIR ? filled(words.pair_of, { query: data.tokens[state.word], key: data.tokens[state.key] }) : about.statistics[name]

  const weightAt = (i, j) => data.row(state.head, i)[j]

  function cell(i, j) {
    const [query, key] = ["query", "key"].map((role, side) =>
      element("span", filled(words.roles[role], { word: data.tokens[[i, j][side]] }), { className: `mh-${role}` }))
    const weight = weightAt(i, j)
    line.replaceChildren(query, punctuation.comma, key, punctuation.colon, weight === undefined ? words.hidden : `${words.weight} ${two(weight)}`)
  }

  function tell(numbers) {
    const named = nameOf(state.head, heads)
    const row = data.row(state.head, state.word)
    const best = mostOf(row)
    const name = numbers ? state.sort : Object.keys(about.statistics)[0]
    const values = numbersOf(name)
    const { colon, comma, full_stop, sentence_space } = punctuation
    const rank = filled(words.rank, { rank: rankOf(values, state.head), count })
    const most = filled(words.most, { query: data.tokens[state.word], key: data.tokens[best] })
    const now = `${colon}${labelOf(name)} ${two(values[state.head])}${comma}${rank}${full_stop}` +
      `${sentence_space}${most}${colon}${two(row[best])}${full_stop}`
    if (named + now !== said.textContent) said.replaceChildren(element("strong", named), now) // else it would be read again
    const highest = rangeOf(state.sort)?.[1]
    limit.textContent = !numbers ? (state.sort === PAIR ? words.masked : words.by_layer) : highest === undefined ? words.unmoved
      : filled(words.above, { above: numbers.filter(x => x > highest).length, count, limit: two(highest) }) + (state.sort === PAIR ? ofOthers(numbers) : "")
  }

  /** How many of this query's other keys get as much from some head. */
  function ofOthers(numbers) {
    const best = Math.max(...numbers)
    const others = data.row(state.head, state.word).map((_, j) => Math.max(...data.pair(state.word, j).numbers))
    const more = others.filter((x, j) => j !== state.key && x >= best).length
    return punctuation.sentence_space + filled(words.others, { more, all: others.length - 1, count, best: two(best) })
  }

  /** Tokens as buttons, which say one that is chosen; those of the key are there when heads are sorted by a pair. */
  function tokenRow(className, choose, point) {
    const made = element("div", "", { className, role: "group" })
    made.addEventListener("click", ({ target }) => target.dataset.token && choose(Number(target.dataset.token)))
    made.addEventListener("pointerover", ({ target, pointerType }) =>
      pointerType === "mouse" && target.dataset.token && point(Number(target.dataset.token)))
    made.addEventListener("pointerleave", () => cell(state.word, state.key))
    return made
  }

  function showTokens(row) {
    const paired = state.sort === PAIR
    asking.textContent = paired ? words.choose_query : words.choose_token
    askingKey.hidden = keys.hidden = !paired
    for (const [made, asks, chosen, shaded] of [
      [tokens, asking, state.word, !paired], [keys, askingKey, state.key, true],
    ]) {
      const shown = made.hidden ? [] : data.tokens
      const file = made.hidden ? "" : fileOf(state)
      if (made.dataset.of !== file) {
        made.dataset.of = file
        made.replaceChildren(...shown.map((token, i) =>
          element("button", token, { type: "button" }, { "aria-label": filled(words.token, { word: token, number: i + 1 }), "data-token": i })))
      }
      made.setAttribute("aria-label", asks.textContent)
      shown.forEach((_, i) => {
        made.children[i].setAttribute("aria-pressed", i === chosen)
        made.children[i].style.setProperty("--weight", `${shaded ? 100 * (row[i] ?? 0) : 0}%`)
      })
    }
  }

  function showNumbers() {
    const names = [...(state.sort === PAIR ? [PAIR] : []), ...Object.keys(about.statistics)]
    const rows = names.flatMap(name => {
      const values = numbersOf(name)
      if (!known(values)) return []
      const [value, range] = [values[state.head], rangeOf(name)]
      const shown = two(value)
      const outside = range && (+shown < +two(range[0]) || +shown > +two(range[1]))
      return [element("tr", [
        element("th", labelOf(name), { scope: "row" }),
        element("td", outside ? element("strong", shown) : shown), element("td", String(rankOf(values, state.head))),
        element("td", range ? filled(words.range, { low: two(range[0]), high: two(range[1]) }) : words.same),
      ], { className: name === state.sort ? "mh-sorted" : "" })]
    })
    const header = words.columns.map(name => element("th", name, { scope: "col" }))
    table.replaceChildren(element("thead", element("tr", header)), element("tbody", rows))
  }

  form.addEventListener("submit", event => event.preventDefault())
  form.addEventListener("change", ({ target }) => {
    if (target === which) {
      const nothing = Object.fromEntries(["sentence", "start", "head", "word", "key", "sort"].map(name => [name, null]))
      keep({ ...nothing, model: which.value === model.titles[0] ? null : which.value })
      model.use(which.value).then(() => place.querySelector("[name=model]")?.focus())
    } else if (target === sentence) choose({ sentence: sentence.value })
    else if (target === start) choose({ start: start.checked })
    else if (target === sort) choose({ sort: sort.value, ...(sort.value && { head: undefined }) })
    else choose({ head: Number(layer.value) * heads + Number(head.value) })
  })
  // Links of this page that ask for a state need no reload; the button for the page before leads back.
  document.addEventListener("click", event => {
    const link = event.target.closest?.("a[href]")
    if (!link || link.target || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    if (link.origin + link.pathname !== location.origin + location.pathname || !link.search.includes("sentence=")) return
    event.preventDefault()
    history.pushState(null, "", link.href)
    place.scrollIntoView()
    restore().then(() => place.querySelector("canvas")?.focus({ preventScroll: true }))
  }, { signal })
  addEventListener("popstate", restore, { signal })
  const redraw = () => data && update()
  let width = 0
  const resized = new ResizeObserver(() => width !== (width = place.clientWidth) && redraw())
  const recoloured = new MutationObserver(redraw)
  resized.observe(place)
  recoloured.observe(document.body, { attributeFilter: ["data-md-color-scheme"] })
  signal.addEventListener("abort", () => [resized, recoloured].forEach(each => each.disconnect()))
  return restore()
}

mount("browse-heads", show)
