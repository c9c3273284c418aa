// The online softmax, one score at a time. A browser test compares steps() with Python.

import { asked, element, filled, keep, mount, numberIn, teller } from "./dom.js"

const words = wordsOf("online-softmax")
const SCORES = [1, 3, 2, 5, 4]

/** What each step computes: the largest score so far, and the sum of exponentials in its units. */
export function steps(scores) {
  let [largest, total] = [-Infinity, 0]
  return scores.map(score => {
    const [old, before] = [largest, total]
    largest = Math.max(largest, score)
    const factor = Math.exp(old - largest)
    const term = Math.exp(score - largest)
    total = factor * before + term
    return { score, largest, before, factor, term, total }
  })
}

const digits = x => x.toFixed(4).replace("-", "−")

mount("online-softmax", place => {
  const query = asked()
  const given = (query.get("scores") ?? "").split(",").map(Number)
  let scores = given.length === SCORES.length && given.every(Number.isFinite) ? given : SCORES
  let done = Math.max(1, Math.min(SCORES.length, Math.trunc(Number(query.get("step"))) || 1))
  const fields = SCORES.map((score, i) => element("input", "",
    { type: "number", step: "any", defaultValue: score, value: scores[i] }, { "aria-label": `${words.scores} ${i + 1}` }))
  const button = (name, properties, by) => {
    const made = element("button", words.buttons[name], { className: "md-button", ...properties })
    if (by) made.addEventListener("click", () => { done += by; update(); remember() })
    return made
  }
  const back = button("back", { type: "button" }, -1)
  const next = button("step", { type: "button" }, 1)
  const form = element("form", [
    element("fieldset", [element("legend", words.scores), ...fields]),
    element("div", [back, next, button("reset", { type: "reset" })], { className: "mh-buttons" }),
  ])
  const result = element("div", "", { className: "mh-widget-result" })
  const { place: told, tell } = teller()

  function update() {
    scores = fields.map((field, i) => numberIn(field, scores[i]))
    const all = steps(scores)
    const last = all[done - 1]
    back.disabled = done === 1
    next.disabled = done === all.length
    const rows = all.slice(0, done).map(({ score, largest, before, factor, term, total }) =>
      [score, largest, `${digits(before)} × ${digits(factor)}`, digits(term), digits(total)])
    const table = element("table", [
      element("thead", element("tr", words.columns.map(name => element("th", name, { scope: "col" })))),
      element("tbody", rows.map(row => element("tr", row.map(cell => element("td", String(cell)))))),
    ], { className: "mh-table" }, { "aria-label": words.scores })
    const weights = scores.map(score => digits(Math.exp(score - last.largest) / last.total))
    const end = done === all.length ? [element("p", `${words.weights}: ${weights.join("  ")}`)] : []
    result.replaceChildren(table, ...end)
    tell([filled(words.told, { step: done, largest: last.largest, sum: digits(last.total) }), ...end.map(each => each.textContent)].join("; "))
  }
  const remember = () => keep({ scores: String(scores) === String(SCORES) ? null : scores, step: done === 1 ? null : done })
  form.addEventListener("input", update)
  form.addEventListener("change", remember)
  form.addEventListener("reset", () => setTimeout(() => { done = 1; update(); remember() }))
  form.addEventListener("submit", event => event.preventDefault())
  place.replaceChildren(form, result, told)
  update()
})
