// Maps of heads for the widgets that show many: all of them small, one of them large. What they need of a model's data is
// its tokens and `row(head, i)`, the weights of a head's query.

import { MOVES, element, filled } from "./dom.js"

const words = wordsOf("browse-heads")
export const nameOf = (head, heads) => filled(words.name, { layer: Math.floor(head / heads) + 1, head: head % heads + 1 })

/** A canvas as large as it is shown, in the screen's own dots. */
function sharp(canvas, width, height) {
  const dots = devicePixelRatio || 1
  Object.assign(canvas, { width: Math.round(width * dots), height: Math.round(height * dots) })
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` })
  return dots
}

const svgElement = (tag, attributes = {}, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.textContent = text
  return made
}

/** All heads, in an order; a click or arrow keys choose one. */
export function smallMaps({ layers, heads, group, causal }, choose, press = () => {}) {
  const canvas = element("canvas", "", { tabIndex: 0 }, { role: "application", "aria-label": filled(words.grid, { count: layers * heads }) })
  const place = element("div", canvas, { className: "mh-small-maps" })
  const [LEFT, TOP, GAP, BETWEEN] = [26, 16, heads > 9 ? 2 : 4, 5]
  let now = null
  let size = 0

  const between = (column, byLayer) => (byLayer && group > 1 ? Math.floor(column / group) * BETWEEN : 0)
  const at = (spot, byLayer) => [
    LEFT + (spot % heads) * (size + GAP) + between(spot % heads, byLayer),
    TOP + Math.floor(spot / heads) * (size + GAP),
  ]

  function update(data, order, { head, cut }, numbers, highest) {
    const [byLayer, L] = [!numbers, data.tokens.length]
    const groups = byLayer && group > 1 ? (heads / group - 1) * BETWEEN : 0
    const room = Math.floor((Math.min(place.clientWidth, 460) - LEFT - groups - 2) / heads) - GAP
    size = room >= L && room % L < 0.2 * room ? room - room % L : room
    const [width, height] = [LEFT + heads * (size + GAP) + groups, TOP + layers * (size + GAP)]
    if (!place.clientWidth) return // not laid out yet
    const style = getComputedStyle(place)
    const color = name => style.getPropertyValue(name).trim()
    const dots = sharp(canvas, width, height)
    const paint = canvas.getContext("2d")
    paint.fillStyle = color("--mh-weights")
    const [red, green, blue] = [1, 3, 5].map(start => parseInt(paint.fillStyle.slice(start, start + 2), 16))
    const side = Math.round(size * dots)
    const picture = paint.createImageData(side, side)
    order.forEach((each, spot) => {
      const rows = data.tokens.map((_, i) => data.row(each, i))
      for (let y = 0; y < side; y++) {
        const row = rows[Math.floor(y * L / side)]
        for (let x = 0; x < side; x++) {
          const dot = 4 * (y * side + x)
          picture.data[dot] = red
          picture.data[dot + 1] = green
          picture.data[dot + 2] = blue
          picture.data[dot + 3] = 255 * (row[Math.floor(x * L / side)] ?? 0)
        }
      }
      const [left, top] = at(spot, byLayer)
      paint.putImageData(picture, Math.round(left * dots), Math.round(top * dots))
    })
    paint.scale(dots, dots)
    paint.strokeStyle = color("--md-default-fg-color--lightest")
    paint.lineWidth = 1
    order.forEach((_, spot) => {
      const [left, top] = at(spot, byLayer)
      if (!causal) return paint.strokeRect(left - 0.5, top - 0.5, size + 1, size + 1)
      paint.beginPath() // the keys that a query sees: those up to its own
      paint.moveTo(left - 0.5, top - 0.5)
      paint.lineTo(left - 0.5, top + size + 0.5)
      paint.lineTo(left + size + 0.5, top + size + 0.5)
      paint.stroke()
    })
    paint.fillStyle = color("--md-default-fg-color--light")
    paint.font = `11px ${style.fontFamily}`
    Object.assign(paint, { textAlign: "right", textBaseline: "middle" })
    for (let row = 0; row < layers; row++)
      paint.fillText(byLayer ? row + 1 : row * heads + 1, LEFT - 4, at(row * heads, byLayer)[1] + size / 2)
    Object.assign(paint, { textAlign: "center", textBaseline: "alphabetic" })
    if (byLayer)
      for (let column = 0; column < heads; column++) paint.fillText(column + 1, at(column, true)[0] + size / 2, TOP - 4)
    const frame = (spot, name, thick) => {
      const [left, top] = at(spot, byLayer)
      Object.assign(paint, { strokeStyle: color(name), lineWidth: thick })
      paint.strokeRect(left - 1, top - 1, size + 2, size + 2)
    }
    const end = highest === undefined ? 0 : numbers.filter(x => x > highest).length
    if (end && end < order.length) {
      const [left, top] = at(end, byLayer)
      paint.fillStyle = color("--md-default-fg-color")
      paint.fillRect(left - 3, top - 2, 2, size + 4)
    }
    for (const each of cut ?? []) {  // a cut head is crossed out
      const [left, top] = at(order.indexOf(each), byLayer)
      Object.assign(paint, { strokeStyle: color("--md-default-fg-color"), lineWidth: 2 })
      paint.beginPath()
      paint.moveTo(left, top)
      paint.lineTo(left + size, top + size)
      paint.moveTo(left + size, top)
      paint.lineTo(left, top + size)
      paint.stroke()
    }
    const spot = order.indexOf(head)
    frame(spot, "--md-accent-fg-color", 2)
    const moved = spot !== now?.spot
    now = { order, spot, byLayer }
    if (moved) bring()
  }

  /** Scrolls the maps to the chosen one. */
  function bring() {
    const [, top] = at(now.spot, now.byLayer)
    if (top < place.scrollTop + TOP) place.scrollTop = top - TOP
    const below = top + size + GAP - place.scrollTop - place.clientHeight
    if (below > 0) place.scrollTop += below
  }

  function spotAt({ clientX, clientY }) {
    const box = canvas.getBoundingClientRect()
    return now?.order.findIndex((_, spot) => {
      const [left, top] = at(spot, now.byLayer)
      const [x, y] = [clientX - box.left - left, clientY - box.top - top]
      return -GAP / 2 <= x && x < size + GAP / 2 && -GAP / 2 <= y && y < size + GAP / 2
    }) ?? -1
  }
  canvas.addEventListener("click", event => {
    const spot = spotAt(event)
    if (spot >= 0) choose(now.order[spot])
  })
  canvas.addEventListener("pointermove", event => {
    const head = now?.order[spotAt(event)]
    canvas.title = head === undefined ? "" : nameOf(head, heads)
    canvas.style.cursor = head === undefined ? "" : "pointer"
  })
  canvas.addEventListener("dblclick", event => spotAt(event) >= 0 && press(now.order[spotAt(event)]))
  canvas.addEventListener("keydown", event => {
    if (now && event.key === "Enter") return press(now.order[now.spot])
    const [down, right] = MOVES[event.key] ?? [0, 0]
    if (!now || (!down && !right)) return
    event.preventDefault()
    const [row, column] = [Math.floor(now.spot / heads) + down, now.spot % heads + right]
    if (row < 0 || row >= layers || column < 0 || column >= heads) return
    choose(now.order[row * heads + column])
    const y = canvas.getBoundingClientRect().top + at(now.spot, now.byLayer)[1] // keys don't move the page
    if (y < 80) scrollBy(0, y - 80)
    if (y + size > innerHeight - 10) scrollBy(0, y + size + 10 - innerHeight)
  })
  return { place, canvas, update }
}

/** One head: queries down, keys across, with their tokens; a click or arrow keys choose a cell. */
export function largeMap(choose, point) {
  const place = svgElement("svg", { class: "mh-large-map", tabindex: 0, role: "application", "aria-label": words.map })
  const measure = element("canvas").getContext("2d")
  let now = null

  function update(data, { head, word, key }) {
    const L = data.tokens.length
    const width = Math.min(place.parentElement.clientWidth, 420)
    if (!width) return
    measure.font = `11px ${getComputedStyle(place).fontFamily}`
    const room = Math.ceil(Math.max(...data.tokens.map(token => measure.measureText(token).width))) + 6
    const size = (width - room - 1) / L
    const font = Math.min(11, size + 0.5)
    now = { L, size, room, word, key }
    const [x, y] = [key, word].map(t => room + t * size)
    const cells = data.tokens.flatMap((_, i) => data.row(head, i).map((weight, j) => weight === 0 ? "" : svgElement("rect", {
      x: room + j * size, y: room + i * size, width: size, height: size, "fill-opacity": weight,
    })))
    const edge = svgElement("rect", { x: room, y: room, width: L * size, height: L * size, class: "mh-edge" })
    const labels = data.tokens.flatMap((token, t) => {
      const middle = room + (t + 0.5) * size
      return [
        svgElement("text", { x: room - 4, y: middle + 0.35 * font, "text-anchor": "end", class: t === word ? "mh-query" : "" }, token),
        svgElement("text", { transform: `translate(${middle + 0.35 * font} ${room - 4}) rotate(-90)`, class: t === key ? "mh-key" : "" }, token),
      ]
    })
    const bands = [
      svgElement("rect", { x: room, y, width: L * size, height: size, class: "mh-band mh-query" }),
      svgElement("rect", { x, y: room, width: size, height: L * size, class: "mh-band mh-key" }),
    ]
    place.setAttribute("viewBox", `0 0 ${width} ${width}`)
    place.setAttribute("width", width)
    place.style.fontSize = `${font}px`
    place.replaceChildren(...cells.filter(Boolean), edge, ...labels, ...bands)
  }

  /** The row and the column below the hand; beside the map, those of a label. */
  function cellAt({ clientX, clientY }) {
    const at = new DOMPoint(clientX, clientY).matrixTransform(place.getScreenCTM().inverse())
    return [at.y, at.x].map((x, side) =>
      x < now.room ? [now.word, now.key][side] : Math.min(now.L - 1, Math.floor((x - now.room) / now.size)))
  }
  place.addEventListener("click", event => now && choose(...cellAt(event)))
  place.addEventListener("pointermove", event => now && event.pointerType === "mouse" && point(...cellAt(event)))
  place.addEventListener("pointerleave", () => now && point(now.word, now.key))
  place.addEventListener("keydown", event => {
    const [down, right] = MOVES[event.key] ?? [0, 0]
    if (!now || (!down && !right)) return
    event.preventDefault()
    const [i, j] = [now.word + down, now.key + right]
    if (i >= 0 && i < now.L && j >= 0 && j < now.L) choose(i, j)
  })
  return { place, update }
}
