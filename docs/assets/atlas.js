// Two models drawn from their rows, and how they differ in words. The rows are atlas.json, which the build writes
// from the table of known models and from classes of transformers; nothing here is a model's number.
// What is said of a pair is compared with Python by tests/site/test_atlas.py.

import { asked, element, filled, keep, mountWithFile, punctuation, svg, teller } from "./dom.js"

const words = wordsOf("atlas")
const FILE = new URL("../data/atlas.json", import.meta.url)
const SHEET = new URL("../data/atlas.csv", import.meta.url)
const FIRST = { one: "qwen3-32b", two: "gemma-3-27b" }
const WIDE = 320  // of a drawing of heads, in its own units
const HEIGHTS = { all: 10, chosen: 8, reused: 8, chunk: 6, window: 6, state: 4, convolution: 2 }  // what a layer sees

const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, ",")  // what has a point is below 1,000
const three = x => grouped(Number(x.toPrecision(3)))
const listed = parts => parts.join(punctuation.list_comma)
const sees = kind => (kind.sees === "all" && kind.top ? (kind.reused ? "reused" : "chosen") : kind.sees)

/** What the layers of one kind see: "52 of 62 layers see the last 1,024 tokens". */
function seen(row, kind) {
  const alone = row.kinds.length === 1
  const parts = { layers: kind.layers, all: row.layers, window: grouped(kind.window), top: grouped(kind.top) }
  const shared = kind.shared ? words.shared : ""
  const older = kind.every > 1 ? filled(words.older, { every: kind.every }) : ""
  return filled(alone ? words.whole : words.part, parts) + filled(words.sees[sees(kind)], parts) + older + shared
}

/** The kind that most of those layers are of that keep keys, or a latent. */
const main = row => row.kinds.filter(kind => kind.key && !kind.shared && kind.sees !== "state").toSorted((a, b) => b.layers - a.layers)[0]

function heads(kind) {
  if (!kind) return null
  const parts = { heads: kind.heads, kv: kind.kv, key: kind.key, latent: grouped(kind.latent) }
  return filled(kind.latent ? words.latent : kind.kv === 1 ? words.single : words.heads, parts)
}

function positions(row) {
  const found = []
  if (row.learned) found.push(words.learned)
  if (row.rotary) found.push(filled(words.rotary, row))
  else if (row.turned) found.push(words.turned)
  if (row.bare) found.push(filled(words.bare, row))
  return found.length ? listed(found) : null
}

function norms(row) {
  const found = []
  if (row.norm) found.push(words.norm)
  if (row.sinks) found.push(words.sinks)
  if (row.cap) found.push(filled(words.cap, row))
  return found.length ? listed(found) : words.unnamed
}

const amount = (text, number, unit) => (number === null ? null : filled(text, { number: three(number / unit) }))

/** What a card says, and what is compared: a text, and a number where a ratio says something. */
const FACTS = {
  layers: row => [row.kinds.map(kind => seen(row, kind)).join(punctuation.semicolon)],
  heads: row => [heads(main(row)), main(row)?.kv],
  experts: row => [row.experts ? filled(words.experts, row) : words.none],
  positions: row => [positions(row)],
  norms: row => [norms(row)],
  parameters: row => [amount(words.billions, row.parameters, Number(words.unit)), row.parameters],
  active: row => [amount(words.billions, row.active, Number(words.unit)), row.active],
  token: row => [amount("{number} KiB", row.token, 1024), row.token],
  long: row => [amount("{number} GiB", row.long, 2 ** 30), row.long],
  step: row => [amount("{number} GFLOPs", row.step, 1e9), row.step],
}
const COSTS = ["parameters", "active", "token", "long", "step"]

/** The second number to the first: "half of that"; nothing where it is the same, or not known. */
function ratio(first, second, said) {
  if (!first || !second) return ""
  const times = second / first
  if (Math.abs(times - 1) < 0.05) return ""
  if (times === 0.5) return said.half
  if (times === 2) return said.twice
  const digits = x => grouped(Number(x.toPrecision(2)))
  return times < 1 ? filled(said.percent, { number: digits(times * 100) }) : filled(said.times, { number: digits(times) })
}

/** Each difference of two rows: its name, and what is said of it. */
export function differences(one, two) {
  return Object.entries(FACTS).flatMap(([name, fact]) => {
    const [[first, from], [second, to]] = [fact(one), fact(two)]
    if (first === second || first === null || second === null) return []
    const said = { one: one.title, two: two.title, first, second, ratio: ratio(from, to, name === "heads" ? words.keys : words.ratio) }
    return [[name, filled(words.difference, said)]]
  })
}

/** The layers, first at the left: as high as they see far, in their order where the class tells it. */
function strip(row) {
  const cells = []
  let x = 0
  const add = (kind, wide) => {
    const high = HEIGHTS[sees(kind)]
    cells.push(svg("rect", { x, y: 10 - high, width: wide, height: high, class: `mh-sees-${sees(kind)}` }))
    x += wide
  }
  if (row.order) for (const letter of row.order) add(row.kinds[letter.charCodeAt(0) - 97], 1)
  else for (const kind of row.kinds) for (let i = 0; i < kind.layers; i++) add(kind, 1)
  const size = { viewBox: `0 0 ${row.layers} 10`, preserveAspectRatio: "none" }
  return svg("svg", { ...size, class: "mh-atlas-strip", role: "img", "aria-label": FACTS.layers(row)[0] }, ...cells)
}

/** Query heads above the keys and values that they share; one bar is a latent, a square a state. */
function picture(kind) {
  const drawn = []
  const step = Math.min(12, WIDE / Math.max(kind.heads, 1))
  for (let i = 0; i < kind.heads; i++)
    drawn.push(svg("rect", { x: i * step, y: 1, width: step * 0.8, height: 9, class: "mh-atlas-query" }))
  const shares = kind.latent ? 1 : kind.kv
  const wide = kind.heads * step / Math.max(shares, 1)
  for (let i = 0; i < shares; i++)
    drawn.push(svg("rect", { x: i * wide, y: 14, width: Math.max(wide - step * 0.2, 1), height: 9, class: kind.latent ? "mh-atlas-latent" : "mh-atlas-key" }))
  if (kind.state && !kind.heads) drawn.push(svg("rect", { x: 1, y: 1, width: 22, height: 22, class: "mh-atlas-state" }))
  return svg("svg", { viewBox: `0 0 ${WIDE} 24`, class: "mh-atlas-heads", "aria-hidden": "true" }, ...drawn)
}

function experts(row) {
  const [wide, high] = [WIDE, 6]
  const part = wide * row.per_token / row.experts
  return svg("svg", { viewBox: `0 0 ${WIDE} ${high}`, class: "mh-atlas-experts", "aria-hidden": "true" },
    svg("rect", { x: 0, y: 0, width: wide, height: high, class: "mh-atlas-rest" }),
    svg("rect", { x: 0, y: 0, width: Math.max(part, 1), height: high, class: "mh-atlas-taken" }))
}

function kindLine(row, kind) {
  const kept = kind.shared ? [] : [filled(kind.numbers ? words.kept : words.state, { numbers: grouped(kind.numbers), state: grouped(kind.state) })]
  if (kind.sees === "convolution") kept.splice(0, 1, words.neighbours)
  const lines = [element("span", "", { className: `mh-swatch mh-sees-${sees(kind)}` }), seen(row, kind)]
  const below = listed([...(kind.heads && (kind.kv || kind.latent) ? [heads(kind)] : []), ...kept])
  return element("li", [element("p", lines), kind.heads || kind.state ? picture(kind) : "", element("p", below, { className: "mh-atlas-small" })])
}

/** A model's card; what differs from the other is marked. */
function card(row, differ) {
  const mark = name => (differ.has(name) ? { className: "mh-differs" } : {})
  const pair = name => element("div", [element("dt", words.labels[name]), element("dd", FACTS[name](row)[0] ?? "–")], mark(name))
  const source = element("a", row.class ? words.class : words.source, { href: row.source })
  return element("section", [
    element("p", [element("b", row.title), " ", row.dated ? element("a", row.date, { href: row.dated }) : String(row.year), " ", source], { className: "mh-atlas-name" }),
    element("div", strip(row), mark("layers")),
    element("ul", row.kinds.map(kind => kindLine(row, kind)), differ.has("heads") ? { className: "mh-differs" } : {}),
    row.experts ? experts(row) : "",
    element("dl", ["experts", "positions", "norms"].map(pair)),
    element("dl", COSTS.map(pair), { className: "mh-atlas-cost" }),
  ], {}, { "aria-label": row.title })
}

function chooser(name, rows, state, show) {
  const years = [...new Set(rows.map(row => row.year))]
  const groups = years.map(year => element("optgroup",
    rows.filter(row => row.year === year).map(row => element("option", row.title, { value: row.name })), { label: String(year) }))
  const select = element("select", groups, { name, value: state[name] })
  select.value = state[name]
  select.addEventListener("change", () => show({ [name]: select.value }))
  return [element("label", [words.choose[name], select]), select]
}

mountWithFile("atlas", FILE, (place, rows) => {
  const find = name => rows.find(row => row.name === name)
  const state = {}
  for (const name of Object.keys(FIRST)) state[name] = find(asked().get(name)) ? asked().get(name) : FIRST[name]
  const told = teller()
  const cards = element("div", "", { className: "mh-atlas-cards" })
  const list = element("ul", "", { className: "mh-atlas-differences" })
  const swap = element("button", words.swap, { type: "button", className: "md-button" })
  const show = (changed = {}) => {
    Object.assign(state, changed)
    for (const name of Object.keys(FIRST)) selects[name].value = state[name]
    keep(Object.fromEntries(Object.keys(FIRST).map(name => [name, state[name] === FIRST[name] ? null : state[name]])))
    const [one, two] = [find(state.one), find(state.two)]
    const found = differences(one, two)
    const differ = new Set(found.map(([name]) => name))
    cards.replaceChildren(card(one, differ), card(two, differ))
    const items = found.map(([name, said]) => element("li", [element("b", words.labels[name]), punctuation.colon, said]))
    list.replaceChildren(...(items.length ? items : [element("li", words.same)]))
    told.tell(found.map(([name, said]) => words.labels[name] + punctuation.colon + said).join(" "))
    tellTimeline()
  }
  const tellTimeline = () => document.dispatchEvent(new CustomEvent("mh-atlas-chosen", { detail: [state.one, state.two] }))
  const made = Object.keys(FIRST).map(name => chooser(name, rows, state, show))
  const selects = Object.fromEntries(Object.keys(FIRST).map((name, i) => [name, made[i][1]]))
  swap.addEventListener("click", () => show({ one: state.two, two: state.one }))
  // A click in timeline.js: the older choice makes room.
  document.addEventListener("mh-atlas-choose", ({ detail }) => { if (detail !== state.one && detail !== state.two) show({ one: state.two, two: detail }) })
  document.addEventListener("mh-atlas-ask", tellTimeline)
  const files = element("p", [words.files, " ", element("a", "JSON", { href: FILE.href, download: "" }), punctuation.list_comma,
    element("a", "CSV", { href: SHEET.href, download: "" })], { className: "mh-atlas-small" })
  place.replaceChildren(element("div", [...made.map(([label]) => label), swap], { className: "mh-fields" }),
    cards, element("p", element("b", words.title)), list, files, told.place)
  show()
})
