// Tables and maps with a row for each query and a column for each key: the cell that a reader points at
// lights up its row and its column, and a line below says what it is made of. A click, a tap or an arrow key
// chooses it: it is there again when the mouse has gone. What `data-grid` holds is
// from scripts/mhsite/stories/grids.py; a browser test compares the line with Python.

import { MOVES, element, filled, number, products, punctuation } from "./dom.js"

const words = wordsOf("grids")
const BLANK = "␣"  // for a space, which a figure has no text for

/** A score as the sum of products that it is, divided by √D. */
export function written(query, key) {
  const scale = Math.sqrt(query.length)
  const score = query.reduce((sum, q, d) => sum + q * key[d], 0) / scale
  const exact = [...query, ...key, score].every(x => Math.abs(100 * x - Math.round(100 * x)) < 1e-6)
  const divisor = Number.isInteger(scale) ? scale : `√${query.length}`
  return `(${products(query, key)}) / ${divisor} ${exact ? "=" : "≈"} ${number(score)}`
}

/** What a cell is made of: its vectors' product, if the page has them, and its number. */
function told({ kind, queries, keys, hidden }, i, j, shown) {
  const parts = kind === "score" ? [] : [[kind ? words.weight : "", shown].filter(Boolean).join(" ")]
  if (hidden?.[i][j]) parts.push(words.hidden)
  else if (kind) parts.push(`${words.score} ${written(queries[i], keys[j])}`)
  return parts.filter(Boolean).join(punctuation.comma)
}

const lit = new WeakSet()
let hinted = false

/** The line below a grid, and what writes into it; the first on the page says how. */
function lineBelow(place) {
  const hint = hinted ? "" : words.hint
  const line = element("output", hint, { className: "mh-cell" })
  hinted = true
  place.after(line)
  return (isChosen, about, i, j, names, shown) => {
    line.setAttribute("aria-live", isChosen ? "polite" : "off")  // what a mouse passes isn't read out
    if (!about) return line.replaceChildren(hint)
    const roles = about.kind || about.shape ? ["query", "key"] : ["plain", "plain"]
    const [query, key] = roles.map((role, side) =>
      element("span", filled(words.roles[role], { word: names[side] }), { className: `mh-${role}` }))
    const text = told(about, i, j, shown)
    line.replaceChildren(query, punctuation.comma, key, text && punctuation.colon + text)
    line.style.minHeight = `${line.offsetHeight}px`  // what stands below moves once at most
  }
}

/** Let a table or a picture light up, once. */
function light(made) {
  if (lit.has(made)) return
  lit.add(made)
  made.matches("table") ? lightTable(made) : lightMaps(made)
}

function lightTable(table) {
  const about = JSON.parse(table.dataset.grid)
  const scroll = table.parentElement
  const say = lineBelow(scroll)
  const [head, ...rows] = [...table.rows].map(row => [...row.cells])
  let chosen = null
  const mark = cell => {
    const [i, j] = cell ? [cell.parentElement.rowIndex - 1, cell.cellIndex] : []
    for (const row of [head, ...rows])
      for (const each of row) {
        each.classList.toggle("mh-row", Boolean(cell) && row === rows[i])
        each.classList.toggle("mh-column", each.cellIndex === j)
      }
    if (cell) say(cell === chosen, about, i, j - 1, [rows[i][0].textContent, head[j].textContent], cell.textContent)
    else say(false)
  }
  const choose = cell => {
    for (const each of rows.flat()) if (each !== cell) each.removeAttribute("tabindex")
    cell.tabIndex = 0
    mark((chosen = cell))
  }
  for (const [type, act] of [["pointerover", mark], ["click", choose], ["focusin", choose]])
    table.addEventListener(type, ({ target }) => {
      const cell = target.closest("tbody td")
      if (cell) act(cell)
    })
  table.addEventListener("pointerleave", () => mark(chosen))
  table.addEventListener("keydown", event => {
    const [down, right] = MOVES[event.key] ?? [0, 0]
    const { parentElement, cellIndex } = event.target
    const next = rows[parentElement.rowIndex - 1 + down]?.[cellIndex + right]
    if (!next?.matches("td") || next === event.target) return
    event.preventDefault()
    choose(next)
    next.focus()
  })
  table.setAttribute("role", "grid")
  table.setAttribute("aria-label", words.labels[about.kind || "table"])
  scroll.removeAttribute("tabindex")  // its cells can be reached instead
  rows[0][1].tabIndex = 0
}

function lightMaps(svg) {
  const maps = [...svg.querySelectorAll("[data-grid]")].map(({ dataset }) => {
    const [left, top, right, bottom] = dataset.box.split(" ").map(Number)
    return { ...JSON.parse(dataset.grid), left, top, right, bottom }
  })
  const say = lineBelow(svg)
  const bands = ["query", "key"].map(role => {
    const band = svg.appendChild(document.createElementNS(svg.namespaceURI, "rect"))
    band.setAttribute("class", `mh-band mh-${role}`)
    return band
  })
  let [chosen, marked] = [null, null]

  const same = (one, other) => one === other || one?.every((each, place) => each === other?.[place])
  function mark(cell) {
    if (same(cell, marked)) return
    marked = cell
    svg.querySelectorAll("text.mh-query, text.mh-key").forEach(text => text.removeAttribute("class"))
    if (!cell) {
      for (const band of bands) frame(band, 0, 0, 0, 0)
      return say(false)
    }
    const [map, i, j] = cell
    const [width, height] = [(map.right - map.left) / map.shape[1], (map.bottom - map.top) / map.shape[0]]
    frame(bands[0], map.left, map.top + i * height, map.right - map.left, height)
    frame(bands[1], map.left + j * width, map.top, width, map.bottom - map.top)
    const labels = bands.map((band, side) => label(band, side === 0))
    labels.forEach((text, side) => text?.setAttribute("class", ["mh-query", "mh-key"][side]))
    say(same(cell, chosen), map, i, j, labels.map(text => text?.textContent.trim() ?? BLANK), map.numbers?.[i][j])
  }

  /** The label of a row, left of its map or of one further left, or of a column, above it. */
  function label(band, ofRow) {
    const [axis, end, low, high] = ofRow ? ["x", "right", "top", "bottom"] : ["y", "bottom", "left", "right"]
    const place = band.getBoundingClientRect()
    const toWindow = svg.getScreenCTM()
    const edges = maps.map(map => new DOMPoint(map.left, map.top).matrixTransform(toWindow)[axis])
    const texts = [...svg.querySelectorAll("text")].map(text => ({ text, at: text.getBoundingClientRect() }))
    const labels = texts.filter(({ at }) => {
      const middle = (at[low] + at[high]) / 2
      const beside = edges.some(edge => Math.abs(edge - at[end] - 3 * toWindow.a) < 7 * toWindow.a)
      const before = at[end] < place[ofRow ? "left" : "top"] + 4 * toWindow.a
      return place[low] < middle && middle < place[high] && beside && before && !mapAt(at)
    })
    return labels.sort((one, other) => other.at[end] - one.at[end])[0]?.text
  }

  /** The map with the middle of a rectangle of the window in it, and the cell there. */
  function mapAt({ left, right = left, top, bottom = top }) {
    const middle = new DOMPoint((left + right) / 2, (top + bottom) / 2)
    const { x, y } = middle.matrixTransform(svg.getScreenCTM().inverse())
    const map = maps.find(map => map.left < x && x < map.right && map.top < y && y < map.bottom)
    const share = (at, start, end, count) => Math.floor((at - start) / (end - start) * count)
    return map && [map, share(y, map.top, map.bottom, map.shape[0]), share(x, map.left, map.right, map.shape[1])]
  }

  const choose = (...cell) => { [chosen, marked] = [cell, null]; mark(cell) }
  for (const [type, act] of [["pointermove", mark], ["click", cell => choose(...cell)]])
    svg.addEventListener(type, ({ clientX, clientY }) => {
      const found = mapAt({ left: clientX, top: clientY })
      if (found) act(found)
    })
  svg.addEventListener("pointerleave", () => mark(chosen))
  svg.addEventListener("focus", () => {
    if (!chosen && svg.matches(":focus-visible")) choose(maps[0], 0, 0)
  })
  svg.addEventListener("keydown", event => {
    if (!MOVES[event.key]) return
    const [down, right] = MOVES[event.key]
    const [map, row, column] = chosen ?? [maps[0], 0, 0]
    const [i, j] = [row + down, column + right]
    const beside = j < 0 ? maps.at(maps.indexOf(map) - 1) : maps[maps.indexOf(map) + 1]
    if (i < 0 || i >= map.shape[0]) return
    event.preventDefault()
    if (0 <= j && j < map.shape[1]) choose(map, i, j)
    else if (beside?.shape[0] > i) choose(beside, i, j < 0 ? beside.shape[1] - 1 : 0)
  })
  svg.tabIndex = 0
  svg.setAttribute("role", "application")
}

function frame(rect, x, y, width, height) {
  for (const [name, value] of Object.entries({ x, y, width, height })) rect.setAttribute(name, value)
}

document.querySelectorAll("table[data-grid], svg:has([data-grid])").forEach(light)
addEventListener("mhattn-made", ({ target }) => light(target))  // by a run, in the page
