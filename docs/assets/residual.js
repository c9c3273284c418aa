// One word on its way through two layers, with and without the residual connection: what it takes, and its vector
// before and after. What each layer reads, its weights and its output, the story of the page block.md wrote into
// stream.json; a browser test computes them anew.

import { sentence } from "./arcs.js"
import { asked, element, filled, keep, mountWithFile, punctuation, teller } from "./dom.js"

const words = wordsOf("residual")
const FILE = new URL("../data/block/stream.json", import.meta.url)
const THEY = 4

const shown = x => (Number.isInteger(x) ? String(x) : x.toFixed(2)).replace("-", "−")

function show(place, ways) {
  const query = asked()
  let layer = query.get("layer") === "2" ? 1 : 0
  let word = words.words[query.get("word") - 1] ? query.get("word") - 1 : THEY

  const line = sentence(words.words, chosen => { word = chosen; update(); remember() })
  const buttons = [1, 2].map(n => element("button", filled(words.layer, { layer: n }), { type: "button" }))
  buttons.forEach((button, n) => button.addEventListener("click", () => { layer = n; update(); remember() }))
  const added = element("input", "", { type: "checkbox", name: "residual", checked: query.get("residual") !== "0" })
  added.addEventListener("change", () => { update(); remember() })
  const heads = [1, 2].map(head => element("span", filled(words.head, { head }), { className: `mh-head-${head}` }))
  const rows = [0, 1, 2].map(() => element("tr", [element("th", "", { scope: "row" }), ...words.features.map(() => element("td"))]))
  const table = element("table", [
    element("caption", ""),
    element("thead", element("tr", [element("td"), ...words.features.map(name =>
      element("th", element("span", name, { className: name.length > 1 ? "mh-tall" : "" }), { scope: "col" }))])),
    element("tbody", rows),
  ], { className: "mh-stream" })
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()

  /** From which word head 1 takes most, or that it takes as much from each. */
  function taken(row) {
    const seen = row.slice(0, word + 1)
    const most = Math.max(...seen)
    const parts = { layer: layer + 1, word: words.words[word], from: words.words[seen.indexOf(most)], weight: shown(most) }
    return filled(seen.length > 1 && most - Math.min(...seen) < 0.005 ? words.each : words.most, parts)
  }

  function update() {
    const [x, weights, Y] = ways[Number(added.checked)][layer]
    const after = x[word].map((number, j) => Y[word][j] + (added.checked ? number : 0))
    line.update(word, weights.map(each => ({ weights: each })))
    buttons.forEach((button, n) => button.setAttribute("aria-pressed", n === layer))
    table.caption.textContent = filled(words.caption, { layer: layer + 1, word: words.words[word] })
    const beside = [words.before, added.checked ? "+ Y" : words.instead, words.after]
    ;[x[word], Y[word], after].forEach((numbers, n) => {
      const [name, ...cells] = rows[n].cells
      name.textContent = beside[n]
      cells.forEach((cell, j) => {
        cell.textContent = shown(numbers[j])
        cell.style.setProperty("--weight", `${Math.round(100 * Math.min(1, Math.abs(numbers[j])))}%`)
      })
    })
    rows[0].classList.toggle("mh-lost", !added.checked)
    const has = words.features.slice(0, -2).flatMap((name, j) => (after[j] < 0.1 ? [] : [`${name} ${shown(after[j])}`]))
    said.textContent = [taken(weights[0][word]), filled(words.has, { word: words.words[word], features: has.join(punctuation.list_comma) })]
      .join(punctuation.sentence_space)
    tell(said.textContent)
  }
  const remember = () => keep({
    word: word === THEY ? null : word + 1, layer: layer ? layer + 1 : null, residual: added.checked ? null : 0,
  })

  place.replaceChildren(element("p", words.hint), heads[0], line.place, heads[1],
    element("div", [...buttons, element("label", [added, " ", words.residual])], { className: "mh-buttons mh-layers" }),
    table, said, told)
  update()
}

mountWithFile("residual", FILE, show)
