// The page why-heads.md by hand: one head's answer for "they" is a dot between two corners, which a slider moves; two
// heads have a dot each. All places are those of the page's story, which wrote answers.json.

import { asked, element, filled, keep, mountWithFile, svg, teller, two } from "./dom.js"
import { words } from "./sentence.js"

const texts = wordsOf("two-answers")
const FILE = new URL("../data/why-heads/answers.json", import.meta.url)
const [UNIT, LEFT, FLOOR] = [130, 40, 160]  // a length of 1, and where zero stands
const at = ([x, y]) => [LEFT + UNIT * x, FLOOR - UNIT * y]
const [CATS, MIA] = [1, 3]

const dot = (place, name) => {
  const [cx, cy] = at(place).map(x => x.toFixed(1))
  return svg("circle", { cx, cy, r: 7, class: name })
}

/** The triangle of the three words, with a title and what stands in it. */
function triangle(title, corners, word, ...content) {
  const ends = [word, CATS, MIA].map(j => at(corners[j]))
  const label = (text, [x, y], dx, dy, anchor = "start") => svg("text", { x: x + dx, y: y + dy, "text-anchor": anchor }, text)
  const picture = svg("svg", { viewBox: "0 0 240 188", "aria-hidden": "true" },
    svg("polygon", { points: ends.map(end => end.join()).join(" ") }),
    ...ends.map(([cx, cy]) => svg("circle", { cx, cy, r: 3 })),
    label(words.words[word], ends[0], -12, 20), label(words.words[CATS], ends[1], 12, 5), label(words.words[MIA], ends[2], -8, -12), ...content)
  return element("div", [element("p", title), picture])
}

function show(place, { word, corners, factors, one, two: pair }) {
  const middle = factors.indexOf(4)
  const wanted = factors.indexOf(Number(asked().get("factor") ?? NaN))
  const slider = element("input", "", {
    type: "range", min: 0, max: factors.length - 1, step: 1, value: wanted < 0 ? middle : wanted, name: "factor" })
  const now = element("b")
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()
  const track = svg("polyline", { points: one.map(each => at(each).map(x => x.toFixed(1)).join()).join(" "), class: "mh-track" })
  const moving = dot(one[middle], "mh-one")
  const heads = pair.map((each, h) => dot(each, `mh-head-${h + 1}`))
  const names = pair.map((each, h) => {
    const [x, y] = at(each)
    return svg("text", { x: x + (h ? 14 : 0), y: y + (h ? 5 : 24), "text-anchor": h ? "start" : "middle", class: `mh-head-${h + 1}` }, filled(texts.head, { head: h + 1 }))
  })

  function update() {
    const i = Number(slider.value)
    const [x, y] = at(one[i])
    moving.setAttribute("cx", x.toFixed(1))
    moving.setAttribute("cy", y.toFixed(1))
    now.textContent = slider.ariaValueText = factors[i].toFixed(1)
    said.textContent = filled(texts.says, {
      factor: factors[i].toFixed(1), animal: two(one[i][0]), person: two(one[i][1]), first: two(pair[0][0]), second: two(pair[1][1]),
      cats: words.words[CATS], mia: words.words[MIA],
    })
    tell(said.textContent)
  }
  slider.addEventListener("input", update)
  slider.addEventListener("change", () => keep({ factor: Number(slider.value) === middle ? null : factors[slider.value] }))
  place.replaceChildren(
    element("p", texts.hint), element("label", [texts.factor, " ", now, slider]),
    element("div", [
      triangle(texts.one, corners, word, track, moving), triangle(texts.two, corners, word, ...heads, ...names),
    ], { className: "mh-dots" }), said, told)
  update()
}

mountWithFile("two-answers", FILE, show)
