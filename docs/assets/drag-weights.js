// The page why-attention.md by hand: lines from "they" to the words so far, which the reader drags thicker, and a
// plane in which "they" moves to what it takes. The numbers are those of the page's story, which wrote weights.json.

import { asked, element, filled, keep, mountWithFile, punctuation, svg, teller, two } from "./dom.js"
import { words } from "./sentence.js"

const texts = wordsOf("drag-weights")
const FILE = new URL("../data/why-attention/weights.json", import.meta.url)
const STEP = 0.1  // what a key, or a tap on a word, adds
const FULL = 120  // pixels of dragging from 0 to 1
const [COLUMN, BASE] = [100, 176]
const [UNIT, LEFT, FLOOR] = [150, 44, 190]  // of the plane: a length of 1, and where zero stands
const KEYS = { "+": 1, "=": 1, ArrowUp: 1, ArrowRight: 1, "-": -1, "−": -1, ArrowDown: -1, ArrowLeft: -1 }

/** The weights after one of them was set: the others, of the words so far, share what is left as they did before. */
export function share(weights, j, wanted, count) {
  const weight = Math.min(1, Math.max(0, wanted))
  const left = 1 - weights[j]
  const part = i => (left > 1e-9 ? weights[i] / left : 1 / (count - 1))
  return weights.map((_, i) => (i >= count ? 0 : i === j ? weight : (1 - weight) * part(i)))
}

/** What a word takes: the mean of the values, weighted. */
export const taken = (weights, values) => values[0].map((_, d) => weights.reduce((sum, weight, j) => sum + weight * values[j][d], 0))

/** A line from a word to `to`; for `to` itself a loop that begins and ends there. */
function curve(j, to) {
  const [x, end] = [j, to].map(place => COLUMN * (place + 0.5))
  const bend = j === to ? `C${end} ${BASE - 105} ${end + 105} ${BASE - 60}` : `Q${(x + end) / 2} ${BASE - 84 * (to - j)}`
  return `M${x} ${BASE}${bend} ${end} ${BASE}`
}

/** The lines above the words; each word so far is a slider for its line, for keys and for a finger. */
function lines(word, change, done) {
  const count = word + 1
  const drawn = words.words.map((_, j) => svg("path", { d: curve(j, word), class: "mh-line" })).slice(0, count)
  const handles = drawn.map((_, j) => svg("path", { d: curve(j, word), class: "mh-handle" }))
  const picture = svg("svg", { viewBox: `0 0 ${COLUMN * words.words.length} ${BASE + 4}`, "aria-hidden": "true" }, ...drawn, ...handles)
  const shown = drawn.map(() => element("b"))
  const sliders = drawn.map((_, j) => element("div", [shown[j], element("span", words.words[j])], { tabIndex: 0 },
    { role: "slider", "aria-label": filled(texts.line, { word: words.words[j] }), "aria-valuemin": 0, "aria-valuemax": 1 }))
  const later = words.words.slice(count).map(name => element("div", [element("b", "\u00a0"), element("span", name)]))
  const row = element("div", [...sliders, ...later], { className: "mh-line-words" })

  let weights = []
  const set = (j, weight) => { change(j, weight); done() }
  sliders.forEach((slider, j) => slider.addEventListener("keydown", event => {
    const end = { Home: 0, End: 1 }[event.key]
    if ((KEYS[event.key] === undefined && end === undefined) || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    set(j, end ?? Math.round((weights[j] + STEP * KEYS[event.key]) * 100) / 100)
  }))
  // A finger on a line draws it, and scrolls beside it; touch-action isn't heeded by every browser within a picture.
  handles.forEach(handle => handle.addEventListener("touchstart", event => event.preventDefault(), { passive: false }))
  for (const [j, grip] of [...handles.entries(), ...sliders.entries()]) {
    let start = null
    grip.addEventListener("pointerdown", event => {
      start = { x: event.clientX, y: event.clientY, weight: weights[j], moved: false }
      grip.setPointerCapture(event.pointerId)
      sliders[j].focus({ preventScroll: true })
    })
    grip.addEventListener("pointermove", event => {
      if (!start) return
      const far = event.clientX - start.x + start.y - event.clientY  // to the right or up is more
      start.moved ||= Math.abs(far) > 3
      if (start.moved) change(j, start.weight + far / FULL)
    })
    grip.addEventListener("pointerup", () => {
      if (!start) return
      if (start.moved) done()
      else set(j, Math.round((start.weight + STEP) * 100) / 100)
      start = null
    })
    grip.addEventListener("pointercancel", () => { start = null; done() })
  }
  const update = now => {
    weights = now
    drawn.forEach((line, j) => {
      line.setAttribute("stroke-width", (1 + 13 * now[j]).toFixed(1))
      line.classList.toggle("mh-none", now[j] < 0.005)
      shown[j].textContent = two(now[j])
      sliders[j].setAttribute("aria-valuenow", now[j].toFixed(2))
      sliders[j].setAttribute("aria-valuetext", two(now[j]))
    })
  }
  return { place: element("div", [picture, row], { className: "mh-lines" }), update }
}

/** Two of the features as a plane, with the words that have one of them, and an arrow to what is taken. */
function plane(values, word) {
  const at = ([x, y]) => [LEFT + UNIT * x, FLOOR - UNIT * y]
  const named = words.words.map((name, j) => ({ name, place: at(values[j]), above: values[j][0] > 0 })).filter((_, j) => values[j][0] || values[j][1])
  const [zero, right, top] = [[0, 0], [1.35, 0], [0, 1.15]].map(at)
  const axis = ([x, y]) => svg("line", { x1: zero[0], y1: zero[1], x2: x, y2: y, class: "mh-axis" })
  const label = (text, x, y, anchor = "start", name = "") => svg("text", { x, y, "text-anchor": anchor, class: name }, text)
  const arrow = svg("line", { x1: zero[0], y1: zero[1], class: "mh-taken" })
  const dot = svg("circle", { r: 7, class: "mh-taken" })
  const place = svg("svg", { viewBox: "0 0 290 222", role: "img" },
    axis(right), axis(top), label(words.features[0], right[0], FLOOR + 18, "end"), label(words.features[1], LEFT - 8, top[1] - 6),
    ...named.flatMap(({ name, place: [x, y], above }) => [
      svg("circle", { cx: x, cy: y, r: 5 }), above ? label(name, x, y - 12, "middle") : label(name, x + 12, y + 5)]),
    svg("circle", { cx: zero[0], cy: zero[1], r: 5, class: "mh-open" }), label(words.words[word], zero[0] - 8, FLOOR + 18), arrow, dot)
  const update = (vector, text) => {
    const [x, y] = at(vector)
    for (const [name, value] of Object.entries({ x2: x, y2: y })) arrow.setAttribute(name, value.toFixed(1))
    dot.setAttribute("cx", x.toFixed(1))
    dot.setAttribute("cy", y.toFixed(1))
    place.setAttribute("aria-label", text)
  }
  return { place, update }
}

function show(place, { word, values, ...presets }) {
  const count = word + 1
  const text = weights => weights.slice(0, count).map(weight => Number(weight.toFixed(3))).join()
  let weights = presets.mean
  const change = (j, weight) => { weights = share(weights, j, weight, count); update() }
  const remember = () => keep({ weights: text(weights) === text(presets.mean) ? null : text(weights) })
  const line = lines(word, change, remember)
  const drawn = plane(values, word)
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()
  const buttons = Object.entries(presets).map(([name, preset]) => {
    const button = element("button", { mean: texts.mean, cats: texts.cats }[name], { type: "button", className: "md-button" })
    button.addEventListener("click", () => { weights = preset; update(); remember() })
    return [button, preset]
  })

  function update() {
    line.update(weights)
    const parts = taken(weights, values).map((x, d) => `${words.features[d]} ${two(x)}`)
    said.textContent = filled(texts.takes, { word: words.words[word] }) + punctuation.colon + parts.join(punctuation.comma)
    drawn.update(taken(weights, values), said.textContent)
    buttons.forEach(([button, preset]) => button.setAttribute("aria-pressed", text(weights) === text(preset)))
    tell(said.textContent)
  }

  const given = (asked().get("weights") ?? "").split(",").map(Number)
  const sum = given.reduce((a, b) => a + b, 0)
  if (given.length === count && given.every(weight => weight >= 0) && Math.abs(sum - 1) < 0.01)
    weights = values.map((_, j) => (given[j] ?? 0) / sum)
  place.replaceChildren(
    element("p", texts.hint),
    element("div", [line.place, drawn.place], { className: "mh-drag" }),
    element("div", buttons.map(([button]) => button), { className: "mh-buttons" }), said, told)
  update()
}

mountWithFile("drag-weights", FILE, show)
