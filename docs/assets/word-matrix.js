// The page attention.md by hand: the numbers of a word meet a matrix; rows of numbers that aren't zero light up and
// are added. All of it is what the page's story wrote into matrices.json.

import { asked, element, filled, keep, mountWithFile, number, punctuation, teller } from "./dom.js"
import { words } from "./sentence.js"

const texts = wordsOf("word-matrix")
const FILE = new URL("../data/attention/matrices.json", import.meta.url)
const THEY = 4
const ROLES = ["query", "key", "value"]
const NAMES = [texts.query, texts.key, texts.value]

function show(place, { asked: compared, X, W, made }) {
  const state = { word: THEY, matrix: 0 }
  const names = [compared, compared, [0, 1, 2, 3]].map(columns => columns.map(d => texts.features[d]))
  const choose = change => { Object.assign(state, change); update(); remember() }
  const buttons = (labels, name, className) => {
    const all = labels.map((label, i) => {
      const button = element("button", label, { type: "button", className })
      button.addEventListener("click", () => choose({ [name]: i }))
      return button
    })
    return { all, update: () => all.forEach((button, i) => button.setAttribute("aria-pressed", i === state[name])) }
  }
  const rows = buttons(words.words, "word", "")
  const tabs = buttons(NAMES.map((name, m) => [element("i", "W"), element("sup", "QKV"[m]), ` ${name}`]), "matrix", "md-button")
  const table = element("table", "", { className: "mh-product" })
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()

  function update() {
    const { word, matrix } = state
    const [x, entries, result] = [X[word], W[matrix], made[matrix][word]]
    const cell = (value, name) => element("td", number(value), { className: name })
    const body = texts.features.map((feature, i) => {
      const adds = x[i] !== 0 && entries[i].some(Boolean)
      return element("tr", [
        element("th", feature, { scope: "row" }), cell(x[i], x[i] ? "mh-there" : ""), element("td", adds ? "→" : ""),
        ...entries[i].map(entry => cell(entry, adds ? "mh-adds" : ""))], { className: adds ? "mh-lit" : "" })
    })
    const title = [element("i", "W"), element("sup", "QKV"[matrix])]
    const sum = element("tr", [element("th", NAMES[matrix], { scope: "row" }), element("td"), element("td", "↓"), ...result.map(value => cell(value, value ? "mh-adds mh-made" : "mh-made"))])
    const below = element("tr", [element("td"), element("td"), element("td"), ...names[matrix].map(name => element("th", name, { scope: "col" }))])
    table.className = `mh-product mh-as-${ROLES[matrix]}`
    table.replaceChildren(
      element("thead", element("tr", [element("td"), element("th", words.words[word], { scope: "col" }), element("td"), element("th", title, { scope: "colgroup", colSpan: 4 })])),
      element("tbody", body), element("tfoot", [sum, below]))
    said.textContent = filled(texts.of, { role: NAMES[matrix], word: words.words[word] }) + punctuation.colon
      + names[matrix].map((name, d) => `${name} ${number(result[d])}`).join(punctuation.comma)
    rows.update()
    tabs.update()
    tell(said.textContent)
  }
  const remember = () => keep({
    row: state.word === THEY ? null : state.word + 1, matrix: state.matrix ? "qkv"[state.matrix] : null })

  const [row, matrix] = [Number(asked().get("row")) - 1, "qkv".indexOf(asked().get("matrix") ?? "q")]
  if (words.words[row]) state.word = row
  if (matrix > 0) state.matrix = matrix
  place.replaceChildren(
    element("p", texts.hint), element("div", rows.all, { className: "mh-words" }),
    element("div", tabs.all, { className: "mh-buttons" }), table, said, told)
  update()
}

mountWithFile("word-matrix", FILE, show)
