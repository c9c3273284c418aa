// The decoders of the atlas by the date on which they were first published, a row for each kind of attention.
// Kind and date stand in atlas.json; a click puts a model into the comparison above, which says what is compared.

import { element, filled, mountWithFile, punctuation, svg, teller } from "./dom.js"

const words = wordsOf("timeline")
const FILE = new URL("../data/atlas.json", import.meta.url)
const STEP = 8  // from a mark to the next, in pixels
const DAY = 24 * 3600 * 1000
const NEAR = 24  // pixels from a finger to the mark that it means

/** The middle of what the date leaves open: the day, the month or the year. */
export function moment({ date, year }) {
  const [y, month, day] = date ? date.split("-").map(Number) : [year]
  if (day) return Date.UTC(y, month - 1, day)
  return month ? Date.UTC(y, month - 1, 15) : Date.UTC(y, 6, 1)
}

/** Where each mark stands: at its date, on those before it that it would cover. */
export function places(rows, across) {
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
export function first(rows) {
  const [one] = rows.filter(row => row.date).toSorted((a, b) => moment(a) - moment(b))
  return one && rows.every(row => row.date || row.year > one.year) ? one : null
}

const day = row => row.date || filled(words.year_only, row)

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
  const count = filled(words.count, { count: rows.length })
  const earliest = start ? filled(words.first, { title: start.title, month: start.date.slice(0, 7) }) : words.unknown
  const lines = years.map(year => svg("line", { x1: across(Date.UTC(year, 0, 1)), x2: across(Date.UTC(year, 0, 1)), y1: 0, y2: high, class: "mh-timeline-year" }))
  const ground = svg("line", { x1: 0, x2: wide, y1: high - 0.5, y2: high - 0.5, class: "mh-timeline-ground" })
  const said = [element("b", words.lanes[name]), punctuation.colon, count, element("span", earliest)]
  return [element("p", said, { className: "mh-timeline-lane" }),
    svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, class: "mh-timeline-row", role: "img", "aria-label": words.lanes[name] + punctuation.colon + count + earliest },
      ...lines, ground, ...all.map(each => mark(each, high, each.row === start)))]
}

/** The years below all rows; on a narrow screen, with two digits. */
function axis(across, years, wide) {
  const names = years.map(year => svg("text", { x: across(Date.UTC(year, 6, 1)), y: 12, "text-anchor": "middle" }, wide < 500 ? `'${year % 100}` : String(year)))
  return svg("svg", { viewBox: `0 0 ${wide} 16`, width: wide, height: 16, class: "mh-timeline-axis", "aria-hidden": "true" }, ...names)
}

mountWithFile("timeline", FILE, (place, rows) => {
  const find = name => rows.find(row => row.name === name)
  const told = teller()
  const chart = element("div")
  const line = element("p", words.hint, { className: "mh-timeline-said" })
  let compared = []
  const show = () => {
    const wide = Math.max(280, Math.floor(place.clientWidth))
    const from = Math.min(...rows.map(row => row.year))
    const years = Array.from({ length: Math.max(...rows.map(row => row.year)) - from + 1 }, (_, i) => from + i)
    const [start, end] = [Date.UTC(from, 0, 1), Date.UTC(years.at(-1) + 1, 0, 1) + 20 * DAY]
    const across = time => (time - start) / (end - start) * (wide - 10) + 5
    const lanes = Object.keys(words.lanes).map(name => [name, rows.filter(row => row.lane === name)])
    chart.replaceChildren(...lanes.filter(([, all]) => all.length).flatMap(([name, all]) => lane(name, all, across, years, wide)), axis(across, years, wide))
    ring()
  }
  const ring = () => {
    for (const each of chart.querySelectorAll(".mh-timeline-mark")) each.classList.toggle("mh-timeline-chosen", compared.includes(each.dataset.name))
  }
  const say = row => line.replaceChildren(element("b", row.title), filled(words.at, { date: day(row) }),
    row.dated ? element("a", words.source, { href: row.dated }) : "")
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
    document.dispatchEvent(new CustomEvent("mh-atlas-choose", { detail: row.name }))
    say(row)
    const pair = compared.map(name => find(name).title)
    if (pair.length) line.append(filled(words.compared, { one: pair[0], two: pair[1] }))
    told.tell(line.textContent)
  })
  document.addEventListener("mh-atlas-chosen", ({ detail }) => { compared = detail; ring() })
  place.replaceChildren(chart, line, told.place)
  show()
  document.dispatchEvent(new CustomEvent("mh-atlas-ask"))
  let last = place.clientWidth
  new ResizeObserver(() => { if (place.clientWidth !== last) { last = place.clientWidth; show() } }).observe(place)
})
