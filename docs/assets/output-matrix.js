// The output matrix of the page multi-head.md: each square that is on passes a number of a head down to a feature
// of the word. What the heads found, and which squares are on at first, the page's story wrote into they.json;
// a browser test computes the columns' sums anew.

import { MOVES, asked, element, filled, keep, mountWithFile, punctuation, teller } from "./dom.js"

const words = wordsOf("output-matrix")
const FILE = new URL("../data/multi-head/they.json", import.meta.url)
const SIZE = 4  // of a head's output
const THEY = 4

/** What is written to each feature: the sum of the numbers that its squares pass down. */
export const written = (numbers, squares) =>
  squares[0].map((_, column) => numbers.reduce((sum, x, row) => sum + x * squares[row][column], 0))

const shown = x => (Number.isInteger(x) ? String(x) : x.toFixed(2)).replace("-", "−")
const head = row => Math.floor(row / SIZE) + 1

function show(place, { X, O, W_o }) {
  const names = W_o.map((_, row) => `${words.features[row % SIZE]} ${head(row)}`)
  let [word, squares, last] = [THEY, W_o.map(row => [...row]), null]

  const buttons = words.words.map((name, i) => element("button", name, { type: "button" }))
  buttons.forEach((button, i) => button.addEventListener("click", () => { [word, last] = [i, null]; update(); remember() }))
  const reset = element("button", words.reset, { type: "button", className: "md-button" })
  reset.addEventListener("click", () => { [squares, last] = [W_o.map(row => [...row]), null]; update(); remember() })

  const cells = W_o.map((row, i) => row.map((_, j) => square(i, j)))
  const given = W_o.map(() => element("td", "", { className: "mh-passed" }))
  const rows = W_o.map((_, i) => element("tr",
    [element("th", names[i], { scope: "row" }), given[i], ...cells[i]], { className: `mh-head-${head(i)}` }))
  const sums = ["Y", "+ X", ""].map(name => element("tr", [
    element("th", name, { scope: "row", colSpan: 2 }), ...words.features.map(() => element("td"))]))
  const column = element("th", "", { scope: "col" })
  const table = element("table", [
    element("caption", words.caption),
    element("thead", element("tr", [element("td"), column, ...words.features.map(name =>
      element("th", element("span", name, { className: name.length > 1 ? "mh-tall" : "" }), { scope: "col" }))])),
    element("tbody", rows), element("tfoot", sums),
  ], { className: "mh-squares" }, { role: "grid", "aria-multiselectable": "true" })
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()

  function square(i, j) {
    const cell = element("td", "", { tabIndex: -1 })
    const toggle = () => { squares[i][j] = 1 - squares[i][j]; last = [i, j]; reach(cell); update(); remember() }
    cell.addEventListener("click", toggle)
    cell.addEventListener("keydown", event => {
      if (event.key === " " || event.key === "Enter") toggle()
      const [down, right] = MOVES[event.key] ?? [0, 0]
      const next = cells[i + down]?.[j + right]
      if (next && next !== cell) { reach(next); next.focus() }
      if (MOVES[event.key] || event.key === " ") event.preventDefault()
    })
    return cell
  }

  /** The one square that the Tab key reaches. */
  function reach(cell) {
    for (const each of cells.flat()) each.tabIndex = each === cell ? 0 : -1
  }

  function update() {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === word))
    const numbers = O[word]
    const Y = written(numbers, squares)
    const sum = Y.map((y, j) => y + X[word][j])
    column.textContent = sums[2].firstChild.textContent = words.words[word]
    sums[2].firstChild.prepend("= ")
    given.forEach((cell, i) => fill(cell, true, numbers[i]))
    cells.forEach((row, i) => row.forEach((cell, j) => {
      const on = squares[i][j] === 1
      fill(cell, on, numbers[i])
      cell.setAttribute("aria-selected", on)
    }))
    ;[Y, X[word], sum].forEach((row, n) => row.forEach((x, j) => { sums[n].cells[j + 1].textContent = shown(x) }))
    const now = words.features.slice(0, -2).flatMap((name, j) => (sum[j] < 0.1 ? [] : [`${name} ${shown(sum[j])}`]))
    said.textContent = filled(words.says, { word: words.words[word], features: now.join(punctuation.comma) })
    tell([...(last ? [label(...last) + punctuation.full_stop] : []), said.textContent].join(punctuation.sentence_space))
  }
  const label = (i, j) => filled(squares[i][j] ? words.on : words.off, { from: names[i], to: words.features[j] })

  /** A number of a head, the stronger the larger. */
  function fill(cell, on, x) {
    cell.textContent = on ? shown(x) : ""
    cell.classList.toggle("mh-on", on)
    cell.style.setProperty("--weight", on ? `${Math.round(100 * Math.min(1, x))}%` : "0%")
  }

  /** Squares that were switched, as row.column from 1. */
  function remember() {
    const switched = squares.flatMap((row, i) => row.flatMap((on, j) => (on === W_o[i][j] ? [] : [`${i + 1}.${j + 1}`])))
    keep({ word: word === THEY ? null : word + 1, squares: switched.length ? switched : null })
  }

  const query = asked()
  if (words.words[query.get("word") - 1]) word = query.get("word") - 1
  for (const [, i, j] of (query.get("squares") ?? "").matchAll(/(\d)\.(\d)/g))
    if (squares[i - 1]?.[j - 1] !== undefined) squares[i - 1][j - 1] = 1 - squares[i - 1][j - 1]
  reach(cells[5][1])  // person 2, which the page speaks of
  place.replaceChildren(element("p", words.hint),
    element("div", buttons, { className: "mh-words" }), table, said, element("div", reset, { className: "mh-buttons" }), told)
  update()
}

mountWithFile("output-matrix", FILE, show)
