// The table of known models: a field filters its rows, headings sort them, and the address keeps both.
// In the figures each mark is a link to its model's row; who points at marks reads their models' names.

import { element, filled, punctuation } from "./dom.js"

const words = wordsOf("known-models")
const UNSORTED = ["layers-see", "also", "source"]
const NEAR = 16  // pixels between a pointer and a mark

const place = document.querySelector(".mh-models")
const table = place.querySelector("table")
const rows = [...table.tBodies[0].rows]  // in the order of the file
const headings = [...table.tHead.rows[0].cells]
const names = headings.map(heading => heading.querySelector("[data-column]").dataset.column)

/** What a row is sorted by: the first number of a cell, or the words of a cell without one. */
function sortedBy(text) {
  const number = text.match(/^([\d.]+)([kM]?)/)
  return number ? number[1] * ({ k: 1e3, M: 1e6 }[number[2]] ?? 1) : text
}

/** Rows in the order of a column; those without a number come last, either way. */
function sorted(column, sign) {
  const values = new Map(rows.map(row => [row, sortedBy(row.cells[column].textContent.trim())]))
  const bare = row => column > 0 && typeof values.get(row) === "string"
  const compare = (one, other) =>
    typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true })
  return rows.toSorted((one, other) =>
    bare(one) - bare(other) || (bare(one) ? 0 : sign * compare(values.get(one), values.get(other))))
}

const state = { filter: "", sort: "" }  // "-active" sorts the largest first
const field = element("input", "", { type: "search", autocomplete: "off", spellcheck: false })
const count = element("output")

function show() {
  const asked = state.filter.toLowerCase().split(/\s+/).filter(Boolean)
  for (const row of rows) {
    const text = `${row.textContent} ${row.querySelector(".mh-model").dataset.is}`.toLowerCase()
    row.hidden = !asked.every(word => text.includes(word))
  }
  count.textContent = filled(words.count, { shown: rows.filter(row => !row.hidden).length, all: rows.length })
  const [sign, name] = state.sort.startsWith("-") ? [-1, state.sort.slice(1)] : [1, state.sort]
  const column = names.indexOf(name)
  headings.forEach((heading, i) => {
    if (i === column) heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending")
    else heading.removeAttribute("aria-sort")
  })
  table.tBodies[0].append(...(column < 0 ? rows : sorted(column, sign)))
}

function keep() {
  const query = new URLSearchParams(location.search)
  for (const [name, value] of Object.entries(state)) value.trim() ? query.set(name, value) : query.delete(name)
  history.replaceState(history.state, "", location.pathname + (query.size ? `?${query}` : "") + location.hash)
  show()
}

/** The row that the address names is never filtered out. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))
  if (!place.contains(target)) return
  if (target.closest("tr").hidden) {
    field.value = state.filter = ""
    keep()
  }
  target.scrollIntoView()
}

/** Names from A to Z first, numbers from the largest; then the other way round; then as in the file. */
function nextSort(name) {
  const order = name === names[0] ? [name, `-${name}`, ""] : [`-${name}`, name, ""]
  return order[(order.indexOf(state.sort) + 1) % 3]
}

headings.forEach((heading, column) => {
  if (UNSORTED.includes(names[column])) return
  const button = element("button", [...heading.childNodes], { type: "button" })
  button.addEventListener("click", () => { state.sort = nextSort(names[column]); keep() })
  heading.replaceChildren(button)
})
field.addEventListener("input", () => { state.filter = field.value; keep() })
const example = element("code", "qwen moe")
place.before(element("p", [element("label", [words.filter, " ", example, field]), count], { className: "mh-filter" }))
for (const name of Object.keys(state)) state[name] = new URLSearchParams(location.search).get(name) ?? ""
if (!names.includes(state.sort.replace(/^-/, ""))) state.sort = ""
field.value = state.filter
show()
reveal()
addEventListener("hashchange", reveal)

/** Below a figure, the models of the mark that a reader points at, taps or reaches with arrow keys. */
function nameMarks(svg) {
  const line = element("output", words.hint, { className: "mh-cell" })
  svg.after(line)
  const rowOf = mark => mark.closest("a").getAttribute("xlink:href").slice(1)
  const middle = mark => {
    const { left, right, top, bottom } = mark.getBoundingClientRect()
    return [(left + right) / 2, (top + bottom) / 2]
  }
  const distance = (mark, x, y) => Math.hypot(middle(mark)[0] - x, middle(mark)[1] - y)
  const places = new Map([...svg.querySelectorAll("a use")].map(mark => [mark, middle(mark)]))
  const marks = [...places.keys()].sort((one, other) =>
    places.get(one)[0] - places.get(other)[0] || places.get(other)[1] - places.get(one)[1])
  let chosen = null

  const choose = mark => {
    const here = marks.filter(other => distance(other, ...middle(mark)) < 1)
    chosen = mark
    marks.forEach(each => each.classList.toggle("mh-chosen", here.includes(each)))
    const names = here.map(each => document.getElementById(rowOf(each)).textContent)
    line.textContent = [...new Set(names)].join(punctuation.list_comma)
  }
  const nearest = ({ clientX, clientY }) => {
    const far = new Map(marks.map(mark => [mark, distance(mark, clientX, clientY)]))
    const mark = marks.reduce((best, mark) => (far.get(mark) < far.get(best) ? mark : best))
    return far.get(mark) < NEAR ? mark : null
  }
  svg.addEventListener("pointermove", event => {
    const mark = event.pointerType === "mouse" && nearest(event)
    if (mark && mark !== chosen) choose(mark)
  })
  svg.addEventListener("click", event => {  // of a finger: the first tap names, the next leads on
    const mark = nearest(event)
    if (mark && mark === chosen) location.hash = rowOf(mark)
    else if (mark) choose(mark)
    event.preventDefault()
  })
  svg.addEventListener("focus", () => {
    if (!chosen && svg.matches(":focus-visible")) choose(marks[0])
  })
  svg.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key]
    if (!chosen) return
    if (event.key === "Enter") location.hash = rowOf(chosen)
    const others = marks.filter(mark => mark === chosen || distance(mark, ...middle(chosen)) >= 1)
    const next = step && others[others.indexOf(chosen) + step]
    if (!next) return
    event.preventDefault()
    choose(next)
  })
  svg.querySelectorAll("a").forEach(link => link.setAttribute("tabindex", "-1"))
  svg.tabIndex = 0
  svg.setAttribute("role", "application")
}

document.querySelectorAll(".mh-figure:has(a use)").forEach(nameMarks)
