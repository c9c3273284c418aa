// The control of a cut, many times at once: as many other heads of the same layers, drawn by lot, and where the reader's cut stands among them.

import { element, filled, svg } from "./dom.js"
import { button, left, work } from "./cut-heads-work.js"

const words = wordsOf("cut-heads-lots")
const LOTS = 20
const EQUAL = 1e-4  // nearer numbers are the same: sums in another order
const [WIDTH, HEIGHT, EDGE] = [300, 46, 10]

/** As many of these as asked for, without putting back. */
export function drawn(choice, many) {
  const rest = [...choice]
  return Array.from({ length: many }, () => rest.splice(Math.floor(Math.random() * rest.length), 1)[0])
}

/**
 * @param now what is cut: the numbers of its heads; of any lot of heads, how the model is asked for it; the bars by which it is measured;
 * whether answer and cut are still the same.
 */
export function manyLots(engine, { heads: inLayer, name }, now) {
  const line = element("p", "", { className: "mh-limit" }, { role: "status" })
  const picture = element("div")
  const label = () => filled(words.lots, { count: LOTS })
  const key = button(label(), () => work(key, label, compute))

  async function compute(wanted) {
    const { heads, asked, position, bars, count } = now()
    const layers = new Set(heads.map(each => Math.floor(each / inLayer)))
    const others = Array.from({ length: count }, (_, each) => each).filter(each => !heads.includes(each))
    const near = others.filter(each => layers.has(Math.floor(each / inLayer)))
    const choice = near.length >= heads.length ? near : others
    const [tokens, began, found] = [bars.tokens(), performance.now(), []]
    const measure = async cut => bars.plain(await engine.ask("measure", { cut, position, tokens }))
    const [whole, yours] = [await measure([]), await measure(asked(heads))]
    while (found.length < LOTS && wanted() && now().same(tokens, heads)) {
      const lot = drawn(choice, heads.length).sort((one, other) => one - other)
      found.push({ lot, reached: await measure(asked(lot)) })
      line.textContent = filled(words.lots_going, { now: found.length, count: LOTS, left: left(began, found.length, LOTS) })
    }
    if (!found.length || !now().same(tokens, heads)) return forget()
    say(found, { whole, yours, heads, bars, near: choice === near })
  }

  function say(found, { whole, yours, heads, bars, near }) {
    const reached = found.map(each => each.reached).sort((one, other) => one - other)
    const middle = (reached[(reached.length - 1) >> 1] + reached[reached.length >> 1]) / 2
    const [worst, best] = [reached[0], reached.at(-1)]
    line.textContent = filled(near ? words.lots_found : words.lots_anywhere, {
      lots: found.length, count: heads.length, measure: bars.measureOf("chance"), worst: bars.said(worst), middle: bars.said(middle), best: bars.said(best),
      yours: bars.said(yours), below: reached.filter(x => x < yours - EQUAL).length,
    })
    draw(found, { whole, yours, bars })
  }

  /** A dot for each lot, a rhomb for the reader's cut, a bar where nothing is cut. */
  function draw(found, { whole, yours, bars }) {
    const all = [whole, yours, ...found.map(each => each.reached)]
    const [low, high] = [Math.min(...all), Math.max(...all)]
    const at = x => EDGE + (WIDTH - 2 * EDGE) * (high - low > EQUAL ? (x - low) / (high - low) : 0.5)
    const named = (shape, text) => { shape.append(svg("title", {}, text)); return shape }
    const dots = found.map(({ lot, reached }, i) => named(svg("circle", { cx: at(reached).toFixed(1), cy: 12 + 4 * (i % 4), r: 3, class: "mh-lot" }),
      `${lot.map(name).join(", ")}: ${bars.said(reached)}`))
    const x = at(yours)
    picture.replaceChildren(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "mh-lots", role: "img", "aria-label": line.textContent },
      svg("line", { x1: EDGE, x2: WIDTH - EDGE, y1: 31, y2: 31 }),
      named(svg("rect", { x: at(whole) - 1, y: 4, width: 2, height: 27 }), filled(words.lots_whole, { reached: bars.said(whole) })),
      ...dots,
      named(svg("path", { d: `M${x - 6} 18L${x} 9L${x + 6} 18L${x} 27Z`, class: "mh-yours" }), filled(words.lots_yours, { reached: bars.said(yours) })),
      svg("text", { x: EDGE, y: 43 }, bars.said(low)),
      svg("text", { x: WIDTH - EDGE, y: 43, "text-anchor": "end" }, bars.said(high))),
    element("p", words.lots_key, { className: "mh-limit" }))
  }

  function forget() {
    line.textContent = ""
    picture.replaceChildren()
  }
  return { key, forget, place: element("div", [line, picture]) }
}
