// Two heads read a sentence; the reader chooses a word, hides what comes later, edits queries and keys.
// With the option one-head it is the first alone, and there is less to set; with mask, its mask as well.
// A browser test compares attend() with Python.

import { sentence } from "./arcs.js"
import { MOVES, asked, element, filled, keep, mount, number, numberIn, products, punctuation, teller, two } from "./dom.js"

export const words = wordsOf("sentence")

const PLACES = [[2, 1], [1, 2], [-1, 2], [-2, 1], [-2, -1], [-1, -2]]
const KEYS = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
const VALUES = [[0, 0, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
const NONE = [0, 0, 0, 0]

/** The two heads of the page: queries and keys, a row for each word. */
export const heads = () => [
  { queries: PLACES.map((_, i) => (i === 4 ? [0, 0, 8, 0] : [...NONE])), keys: KEYS.map(row => [...row]) },
  {
    queries: PLACES.map(([x, y]) => [4 * x + 4 * y, 4 * y - 4 * x, 0, 0]),
    keys: PLACES.map(([x, y]) => [x, y, 0, 0]),
  },
]

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0)

/** Scores, weights and outputs of one head; a hidden score is null. */
export function attend({ queries, keys }, { temperature = 1, causal = true } = {}) {
  const scale = Math.sqrt(keys[0].length) * temperature
  const scores = queries.map((query, i) =>
    keys.map((key, j) => (causal && j > i ? null : dot(query, key) / scale)))
  const weights = scores.map(row => {
    const largest = Math.max(...row.filter(score => score !== null))
    const parts = row.map(score => (score === null ? 0 : Math.exp(score - largest)))
    const sum = parts.reduce((a, b) => a + b)
    return parts.map(part => part / sum)
  })
  const outputs = weights.map(row => NONE.map((_, d) => dot(row, VALUES.map(value => value[d]))))
  return { scores, weights, outputs }
}

/** The key whose weight grew more than any other's, or none. */
function gained(before, after) {
  const gains = after.map((weight, j) => weight - before[j])
  const [most, next] = [...gains].sort((a, b) => b - a)
  return most - next > 0.005 ? gains.indexOf(most) : null
}

const SIDES = { q: "queries", k: "keys" }  // in the address, q1.5=0,4,0,0 is the fifth query of head 1

function show(place) {
  const count = place.dataset.option ? 1 : 2
  const isCausal = place.dataset.option !== "one-head"
  const { head: headName, query: queryName, key: keyName } = count === 1 ? words.alone : words
  const start = () => ({ head: 0, word: 4, key: 1, heads: heads().slice(0, count) })
  let state = start()

  const line = sentence(words.words, word => choose({ word }), count)
  const slider = element("input", "", { type: "range", min: -1, max: 1, step: 0.05, defaultValue: 0, name: "temperature" })
  const degrees = element("span")
  const causal = element("input", "", { type: "checkbox", defaultChecked: isCausal, name: "causal" })
  const form = element("form", [
    ...(count === 2 ? [element("label", [words.temperature, " ", degrees, slider])] : []),
    ...(isCausal ? [element("label", [causal, " ", words.causal])] : []),
    element("button", words.reset, { type: "reset", className: "md-button" }),
  ])
  const tables = state.heads.map((_, head) =>
    weightTable(filled(headName, { head: head + 1 }), head, (word, key) => choose({ head, word, key }), (word, key) => mark({ head, word, key })))
  const editors = Object.values(SIDES).map(side => editor(side, numbers => {
    const { head, word, key } = state
    const before = weights()[word]
    state.heads[head][side][side === "queries" ? word : key] = numbers
    if (side === "queries") state.key = gained(before, weights()[word]) ?? key
    update()
  }))
  const sum = element("p", "", { className: "mh-sum" })
  const taken = element("table", "", { className: "mh-table" })
  const { place: told, tell } = teller()

  let results = []
  const compute = () => state.heads.map(head =>
    attend(head, { temperature: 10 ** Number(slider.value), causal: causal.checked }))
  const weights = () => compute()[state.head].weights
  const choose = change => { Object.assign(state, change); update(); remember() }

  /** What a cell is made of. Only this follows the hand; what is edited is what was chosen. */
  function mark(cell) {
    const { head, word, key } = cell
    tables.forEach((table, h) => table.mark(state.word, h === head ? cell : null))
    const [query, found] = [state.heads[head].queries[word], state.heads[head].keys[key]]
    const score = results[head].scores[word][key]
    const degree = 10 ** Number(slider.value)
    const divided = degree === 1 ? "2" : `(2 · ${number(degree)})`
    const names = [
      ...(count === 2 ? [filled(headName, { head: head + 1 }), punctuation.comma] : []),
      element("span", filled(words.asks, { word: words.words[word] }), { className: "mh-query" }), punctuation.comma,
      element("span", filled(words.offers, { word: words.words[key] }), { className: "mh-key" }), punctuation.colon,
    ]
    const weight = `${words.weight} ${two(results[head].weights[word][key])}`
    sum.replaceChildren(...names, score === null ? words.hidden
      : `(${products(query, found)}) / ${divided} = ${number(score)}${punctuation.semicolon}${weight}`)
    return sum.textContent
  }

  function update() {
    degrees.textContent = number(10 ** Number(slider.value))
    slider.setAttribute("aria-valuetext", degrees.textContent)
    results = compute()
    const { word, key, head } = state
    line.update(word, results)
    tables.forEach((table, h) => table.update(results[h], word, h === head ? key : null))
    const names = head === 0 ? words.asked : ["→", "↑", "", ""]
    editors[0].update(filled(queryName, { head: head + 1, word: words.words[word] }), state.heads[head].queries[word], names)
    editors[1].update(filled(keyName, { head: head + 1, word: words.words[key] }), state.heads[head].keys[key], names)
    tell(mark(state))
    const rows = results.map(({ outputs }, h) => element("tr", [
      element("th", filled(headName, { head: h + 1 }), { scope: "row" }), ...outputs[word].map(x => element("td", two(x)))]))
    const header = [filled(words.takes, { word: words.words[word] }), ...words.features]
    taken.replaceChildren(
      element("thead", element("tr", header.map(name => element("th", name, { scope: "col" })))),
      element("tbody", rows))
  }

  /** What differs from the start, for the address. */
  function remember() {
    const first = start()
    const said = (value, usual) => (String(value) === String(usual) ? null : value)
    const kept = {
      head: said(state.head + 1, 1), word: said(state.word + 1, 5), key: said(state.key + 1, 2),
      temperature: said(slider.value, 0), causal: said(Number(causal.checked), Number(isCausal)),
    }
    state.heads.forEach((head, h) => Object.entries(SIDES).forEach(([letter, side]) => head[side].forEach((row, i) => {
      kept[`${letter}${h + 1}.${i + 1}`] = said(row, first.heads[h][side][i])
    })))
    keep(kept)
  }

  function restore() {
    const query = asked()
    const numbered = (name, most, usual) => {
      const wanted = Number(query.get(name) ?? NaN)
      return Number.isInteger(wanted) && 0 < wanted && wanted <= most ? wanted - 1 : usual
    }
    const { head, word, key } = state
    Object.assign(state, { head: numbered("head", count, head), word: numbered("word", 6, word), key: numbered("key", 6, key) })
    if (query.has("temperature")) slider.value = query.get("temperature")
    if (query.has("causal")) causal.checked = query.get("causal") === "1"
    for (const [name, text] of query) {
      const [, letter, h, i] = /^([qk])(\d)\.(\d)$/.exec(name) ?? []
      const numbers = text.split(",").map(Number)
      if (state.heads[h - 1]?.[SIDES[letter]][i - 1] && numbers.length === 4 && numbers.every(Number.isFinite))
        state.heads[h - 1][SIDES[letter]][i - 1] = numbers
    }
  }

  form.addEventListener("input", update)
  form.addEventListener("reset", () => setTimeout(() => { state = start(); update(); remember() }))
  form.addEventListener("submit", event => event.preventDefault())
  place.addEventListener("change", remember)
  place.addEventListener("focusout", ({ target }) => target.type === "number" && update())  // an empty field is filled again
  const pair = element("div", tables.map(table => table.place), { className: "mh-pair" })
  pair.addEventListener("pointerleave", () => mark(state))
  place.replaceChildren(
    element("p", words.hint), line.place, form, pair,
    element("div", editors.map(each => each.place), { className: "mh-pair" }), sum, taken, told)
  restore()
  update()
}

/** Weights, queries down and keys across; a click or arrow keys choose a cell, a mouse that passes marks it. */
function weightTable(name, head, choose, mark) {
  const cells = words.words.map((_, i) => words.words.map((_, j) => {
    const cell = element("td", "", {}, { tabindex: -1 })
    cell.addEventListener("pointerenter", event => event.pointerType === "mouse" && mark(i, j))
    cell.addEventListener("click", () => choose(i, j))
    cell.addEventListener("keydown", event => {
      const [down, right] = MOVES[event.key] ?? [0, 0]
      const next = cells[i + down]?.[j + right]
      if (!next || next === cell) return
      event.preventDefault()
      choose(i + down, j + right)
      next.focus()
    })
    return cell
  }))
  const names = words.words.map(word => element("th", word, { scope: "col" }))
  const rows = cells.map((row, i) =>
    element("tr", [element("th", words.words[i], { scope: "row" }), ...row]))
  const place = element("table", [
    element("caption", name),
    element("thead", element("tr", [element("td"), ...names])), element("tbody", rows),
  ], { className: `mh-weights-table mh-head-${head + 1}` }, { role: "grid" })
  const each = act => cells.forEach((row, i) => row.forEach((cell, j) => act(cell, i, j)))
  const shade = (row, cell) => each((td, i, j) => {
    td.className = (i === row ? "mh-row " : "") + (cell?.word === i && cell.key === j ? "mh-column" : "")
  })
  const update = ({ weights, scores }, word, key) => each((cell, i, j) => {
    cell.textContent = scores[i][j] === null ? "×" : two(weights[i][j])  // as in the page's figure
    cell.style.setProperty("--weight", `${Math.round(100 * weights[i][j])}%`)
    cell.tabIndex = i === word && j === (key ?? 0) ? 0 : -1
    cell.setAttribute("aria-selected", i === word && j === key)
  })
  return { place, update, mark: shade }
}

/** Four numbers of a query or a key. */
function editor(side, change) {
  const role = side === "queries" ? "mh-query" : "mh-key"
  const legend = element("legend", "", { className: role })
  const fields = NONE.map(() => element("input", "", { type: "number", step: "any" }))
  const labels = fields.map(field => element("label", [element("span"), field]))
  const place = element("fieldset", [legend, ...labels])
  let last = NONE
  place.addEventListener("input", () => change(fields.map((field, d) => numberIn(field, last[d]))))
  const update = (name, numbers, features) => {
    last = numbers
    legend.textContent = name
    fields.forEach((field, d) => {
      labels[d].firstChild.textContent = features[d]
      field.setAttribute("aria-label", `${name}, ${features[d] || d + 1}`)
      if (field !== document.activeElement) field.value = Math.round(numbers[d] * 100) / 100
    })
  }
  return { place, update }
}

mount("sentence", show)
