// A head of the page build-and-train.md while it is trained: a slider moves through the steps of which the page's
// story kept a copy, and wrote them into birth.json. A browser test compares what stands there with that file.

import { asked, element, filled, keep, mountWithFile, punctuation, svg, teller } from "./dom.js"

const words = wordsOf("birth")
const FILE = new URL("../data/build-and-train/birth.json", import.meta.url)
const CELL = 16
const [WIDTH, HEIGHT] = [320, 96]  // of the curve, which ends where the middle of the slider's knob does

/** The loss above the slider: as far from the left as the knob at the same step, so that the two move together. */
function lossCurve({ steps, loss, curve }) {
  const across = i => i * WIDTH / (steps.length - 1)
  const [low, high] = [Math.min(...curve, ...loss), Math.max(...curve, ...loss)]
  const down = value => 14 + (HEIGHT - 32) * (high - value) / (high - low)
  const between = steps.slice(1).flatMap((end, i) => {
    const start = steps[i]
    const stride = Math.max(1, Math.floor((end - start) / 12))
    return Array.from({ length: Math.ceil((end - start) / stride) }, (_, n) => [
      across(i + n * stride / (end - start)), down(curve[start + n * stride])])
  })
  const line = (points, name) => svg("polyline", { points: points.map(point => point.map(x => x.toFixed(1)).join()).join(" "), class: name })
  const aside = loss.map((value, i) => [across(i), down(value)])
  const now = svg("circle", { r: 5, class: "mh-now" })
  const rule = svg("line", { y1: 14, y2: HEIGHT, class: "mh-rule" })
  const end = Math.min(...aside.filter(([x]) => x > 0.8 * WIDTH).map(([, y]) => y))
  const label = (text, x, y, anchor, name = "") => svg("text", { x, y, "text-anchor": anchor, class: name }, text)
  const place = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "mh-birth-curve", "aria-hidden": "true" },
    label(words.loss, 0, 10, "start"), label(words.aside, WIDTH, end - 6, "end"),
    label(words.training, WIDTH, HEIGHT - 4, "end", "mh-training"),
    rule, line(between, "mh-training"), line(aside, "mh-aside"), now)
  const update = i => {
    const [x, y] = aside[i]
    now.setAttribute("cx", x)
    now.setAttribute("cy", y)
    rule.setAttribute("x1", x)
    rule.setAttribute("x2", x)
  }
  return { place, update }
}

/** A square for each weight, with the characters above and at the left. */
function weightMap(line) {
  const size = CELL * (line.length + 1)
  const mark = (sign, i, j) => svg("text", { x: CELL * (j + 0.5), y: CELL * (i + 0.78) }, sign)
  const cells = line.map((_, i) => line.map((_, j) =>
    svg("rect", { x: CELL * (j + 1), y: CELL * (i + 1), width: CELL - 1, height: CELL - 1 })))
  const place = svg("svg", { viewBox: `0 0 ${size} ${size}`, class: "mh-birth-map", role: "img" },
    ...line.map((sign, i) => mark(sign, 0, i + 1)), ...line.map((sign, i) => mark(sign, i + 1, 0)),
    ...cells.flatMap((row, i) => row.slice(0, i + 1)))
  const update = (map, name) => {
    place.setAttribute("aria-label", name)
    cells.forEach((row, i) => row.forEach((cell, j) => cell.style.setProperty("--weight", `${map[i][j]}%`)))
  }
  return { place, update }
}

function show(place, data) {
  const { steps, loss, share, writes, maps, line, head, back } = data
  const wanted = steps.indexOf(Number(asked().get("step") ?? 0))
  const slider = element("input", "", { type: "range", min: 0, max: steps.length - 1, step: 1, value: Math.max(0, wanted), name: "step" })
  const now = element("b")
  const said = element("p", "", { className: "mh-said" })
  const written = element("p", "", { className: "mh-writes" })
  const curve = lossCurve(data)
  const map = weightMap(line)
  const { place: told, tell } = teller()
  const label = element("label", [words.slider, " ", now, slider])
  function update() {
    const i = Number(slider.value)
    now.textContent = steps[i]
    slider.setAttribute("aria-valuetext", filled(words.step, { step: steps[i] }))
    said.textContent = filled(back === 1 ? words.says_before : words.says, {
      loss: loss[i].toFixed(2), head, share: share[i].toFixed(2), back,
    })
    written.replaceChildren(words.writes, element("b", writes[i]))
    curve.update(i)
    map.update(maps[i], filled(words.map, { head, step: steps[i] }))
    tell([said.textContent, written.textContent].join(punctuation.sentence_space))
  }
  slider.addEventListener("input", update)
  slider.addEventListener("change", () => keep({ step: steps[slider.value] || null }))
  place.replaceChildren(curve.place, label, said, written, map.place, told)
  update()
}

mountWithFile("birth", FILE, show)
