// Two models drawn from their rows, and how they differ in words. The rows are atlas.json, which the build writes
// from the table of known models and from classes of transformers; nothing here is a model's number.
// What is said of a pair is compared with Python by tests/site/test_atlas.py.

import { asked, element, filled, keep, mountWithFile, punctuation, svg, teller } from "./dom.js"

const words = wordsOf("atlas")
const times = wordsOf("timeline")
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

const STEP = 8  // from a mark to the next, in pixels
const DAY = 24 * 3600 * 1000
const NEAR = 24  // pixels from a finger to the mark that it means

/** The middle of what the date leaves open: the day, the month or the year. */
function moment({ date, year }) {
  const [y, month, day] = date ? date.split("-").map(Number) : [year]
  if (day) return Date.UTC(y, month - 1, day)
  return month ? Date.UTC(y, month - 1, 15) : Date.UTC(y, 6, 1)
}

/** Where each mark stands: at its date, on those before it that it would cover. */
function places(rows, across) {
  const found = []
  for (const row of rows.toSorted((a, b) => moment(a) - moment(b))) {
    const x = across(moment(row))
    let level = 0
    while (found.some(other => other.level === level && x - other.x < STEP)) level++
    found.push({ row, x, level })
  }
  return found
}

/** The first of a row: the earliest date, unless a model with a year only may be earlier. */
function first(rows) {
  const [one] = rows.filter(row => row.date).toSorted((a, b) => moment(a) - moment(b))
  return one && rows.every(row => row.date || row.year > one.year) ? one : null
}

const day = row => row.date || filled(times.year_only, row)

function mark({ row, x, level }, high, isFirst) {
  const y = high - STEP / 2 - level * STEP
  const name = { "data-name": row.name, class: row.date ? "mh-timeline-mark" : "mh-timeline-mark mh-timeline-open" }
  return isFirst ? svg("rect", { x: x - 4, y: y - 4, width: 8, height: 8, ...name }) : svg("circle", { cx: x, cy: y, r: 3.2, ...name })
}

/** One kind: its name, how many, the first, and a mark for each model. */
function lane(name, rows, across, years, wide) {
  const all = places(rows, across)
  const high = STEP * (Math.max(...all.map(each => each.level)) + 1) + 2
  const start = first(rows)
  const count = filled(times.count, { count: rows.length })
  const earliest = start ? filled(times.first, { title: start.title, month: start.date.slice(0, 7) }) : times.unknown
  const lines = years.map(year => svg("line", { x1: across(Date.UTC(year, 0, 1)), x2: across(Date.UTC(year, 0, 1)), y1: 0, y2: high, class: "mh-timeline-year" }))
  const ground = svg("line", { x1: 0, x2: wide, y1: high - 0.5, y2: high - 0.5, class: "mh-timeline-ground" })
  const said = [element("b", times.lanes[name]), punctuation.colon, count, element("span", earliest)]
  return [element("p", said, { className: "mh-timeline-lane" }),
    svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, class: "mh-timeline-row", role: "img", "aria-label": times.lanes[name] + punctuation.colon + count + earliest },
      ...lines, ground, ...all.map(each => mark(each, high, each.row === start)))]
}

/** The years below all rows; on a narrow screen, with two digits. */
function axis(across, years, wide) {
  const names = years.map(year => svg("text", { x: across(Date.UTC(year, 6, 1)), y: 12, "text-anchor": "middle" }, wide < 500 ? `'${year % 100}` : String(year)))
  return svg("svg", { viewBox: `0 0 ${wide} 16`, width: wide, height: 16, class: "mh-timeline-axis", "aria-hidden": "true" }, ...names)
}

/** The timeline behind the first paragraph of its section. */
function timeline(rows, choose) {
  const find = name => rows.find(row => row.name === name)
  const place = element("div", "", { className: "mh-widget" }, { "data-widget": "timeline" })
  document.querySelector("#dates + p").after(place)
  const chart = element("div")
  const line = element("p", times.hint, { className: "mh-timeline-said" })
  let compared = []
  const show = () => {
    const wide = Math.max(280, Math.floor(place.clientWidth))
    const from = Math.min(...rows.map(row => row.year))
    const years = Array.from({ length: Math.max(...rows.map(row => row.year)) - from + 1 }, (_, i) => from + i)
    const [start, end] = [Date.UTC(from, 0, 1), Date.UTC(years.at(-1) + 1, 0, 1) + 20 * DAY]
    const across = time => (time - start) / (end - start) * (wide - 10) + 5
    const lanes = Object.keys(times.lanes).map(name => [name, rows.filter(row => row.lane === name)])
    chart.replaceChildren(...lanes.filter(([, all]) => all.length).flatMap(([name, all]) => lane(name, all, across, years, wide)), axis(across, years, wide))
    ring()
  }
  const ring = () => {
    for (const each of chart.querySelectorAll(".mh-timeline-mark")) each.classList.toggle("mh-timeline-chosen", compared.includes(each.dataset.name))
  }
  const say = row => line.replaceChildren(element("b", row.title), filled(times.at, { date: day(row) }),
    row.dated ? element("a", times.source, { href: row.dated }) : "")
  const near = event => {
    const far = each => {
      const { x, y, width, height } = each.getBoundingClientRect()
      return Math.hypot(event.clientX - x - width / 2, event.clientY - y - height / 2)
    }
    const [one] = [...chart.querySelectorAll(".mh-timeline-mark")].map(each => [far(each), each]).toSorted((a, b) => a[0] - b[0])
    return one && one[0] < NEAR ? find(one[1].dataset.name) : null
  }
  chart.addEventListener("mouseover", ({ target }) => target.dataset.name && say(find(target.dataset.name)))
  chart.addEventListener("click", event => {
    const row = near(event)
    if (!row) return
    choose(row.name)
    say(row)
    const pair = compared.map(name => find(name).title)
    if (pair.length) line.append(filled(times.compared, { one: pair[0], two: pair[1] }))
  })
  place.replaceChildren(chart, line)
  show()
  let last = place.clientWidth
  new ResizeObserver(() => { if (place.clientWidth !== last) { last = place.clientWidth; show() } }).observe(place)
  return pair => { compared = pair; ring() }
}

mountWithFile("atlas", FILE, (place, rows) => {
  const find = name => rows.find(row => row.name === name)
  const state = {}
  let ring = null
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
    ring?.([state.one, state.two])
  }
  const made = Object.keys(FIRST).map(name => chooser(name, rows, state, show))
  const selects = Object.fromEntries(Object.keys(FIRST).map((name, i) => [name, made[i][1]]))
  swap.addEventListener("click", () => show({ one: state.two, two: state.one }))
  const files = element("p", [words.files, " ", element("a", "JSON", { href: FILE.href, download: "" }), punctuation.list_comma,
    element("a", "CSV", { href: SHEET.href, download: "" })], { className: "mh-atlas-small" })
  place.replaceChildren(element("div", [...made.map(([label]) => label), swap], { className: "mh-fields" }),
    cards, element("p", element("b", words.title)), list, files, told.place)
  // The older choice makes room.
  ring = timeline(rows, name => { if (name !== state.one && name !== state.two) show({ one: state.two, two: name }) })
  show()
})
