// The stream of the second text put in at each layer and place of the first: what it makes of the difference of two answers.

import { element, filled, two } from "./dom.js"
import { button, left, work } from "./cut-heads-work.js"

const words = wordsOf("cut-heads-grid")

/**
 * @param now what is asked about: `{ run, position, tokens }`, with one token, or two.
 * @param put what a click on a cell does, which is told the layer and the place.
 */
export function patchGrid(engine, layers, now, put) {
  const table = element("table", "", { className: "mh-patch" })
  const line = element("p", "", {}, { role: "status" })
  const press = button(words.patch, () => work(press, () => words.patch, compute))

  async function compute(wanted) {
    const { run, position, tokens } = now()
    if (!run || run.second !== run.count) return void (line.textContent = filled(words.patch_needs, { one: run?.count ?? 0, two: run?.second ?? 0 }))
    const [answer, rival = await engine.ask("secondBest", { position })] = tokens
    if (rival === answer) return void (line.textContent = words.patch_same)
    const both = { position, tokens: [answer, rival] }
    const difference = ({ logits }) => logits[0] - logits[1]
    const first = await engine.ask("measure", { cut: [], ...both })
    const [from, to] = [difference(first), difference(await engine.ask("second", both))]
    const rows = Array.from({ length: layers }, (_, layer) => element("tr", [element("th", layer + 1, { scope: "row" }), ...run.tokens.map(() => element("td"))]))
    table.replaceChildren(element("thead", element("tr", [element("th"), ...run.tokens.map(token => element("th", token, { scope: "col" }))])), element("tbody", rows))
    const began = performance.now()
    for (let layer = layers - 1; layer >= 0 && wanted(); layer--) {
      for (let at = 0; at < run.count && wanted(); at++) {
        const cut = [{ layer, stream: at, as: "other" }]
        const moved = (from - difference(await engine.ask("measure", { cut, ...both }))) / (from - to)
        if (!rows[layer].isConnected) return
        show(rows[layer].cells[at + 1], layer, at, run.tokens[at], moved)
      }
      line.textContent = filled(words.patch_going, { layer: layer + 1, left: left(began, layers - layer, layers) })
    }
    if (!table.rows.length) return
    line.textContent = filled(wanted() ? words.patch_done : words.patch_stopped, { answer: first.names[0], rival: first.names[1] })
  }

  function show(cell, layer, at, token, moved) {
    cell.style.setProperty("--weight", `${100 * Math.max(0, Math.min(1, moved))}%`)
    const name = filled(words.patch_cell, { layer: layer + 1, token, moved: two(moved) })
    const key = element("button", Math.abs(moved) >= 0.05 ? two(moved) : "0", { type: "button", title: name }, { "aria-label": name })
    key.addEventListener("click", () => put(layer, at))
    cell.replaceChildren(key)
    cell.className = "mh-known"
  }

  return {
    forget() {
      table.replaceChildren()
      line.textContent = ""
    },
    place: element("details", [element("summary", words.patch_title), element("p", words.patch_about), press, line,
      element("div", table, { className: "md-typeset__scrollwrap" })]),
  }
}
