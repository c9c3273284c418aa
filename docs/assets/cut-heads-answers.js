// What comes next, before the cuts and after them, as bars; a click on one makes it the answer, on another one its rival.
// By these two everything else is measured.

import { element, filled, punctuation, two } from "./dom.js"

const words = wordsOf("cut-heads-answers")
const SHOWN = 6  // next tokens that have a bar
const AFTER = 3  // of those after a cut
const percent = x => `${(100 * x).toFixed(1)} %`

/**
 * @param next the likeliest tokens at the chosen position, with their names and chances.
 * @param changed what is done when another answer or rival is chosen.
 */
export function answerBars(engine, next, changed) {
  const table = element("table", "", { className: "mh-expected mh-beside" })
  const line = element("p", "", { className: "mh-limit" }, { role: "status" })
  const word = element("input", "", { name: "word", size: 8, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const names = new Map()  // of tokens
  let [chosen, more] = [[], []]  // answer and rival; tokens that the reader asked for besides
  let [drawn, shown] = [null, ""]

  const tokens = () => (chosen.length ? chosen : [next()[0][0]])
  const nameOf = token => names.get(token) ?? next().find(([each]) => each === token)?.[1] ?? ""
  const measureOf = kind => filled(words.measure[chosen.length > 1 ? "both" : kind], { answer: nameOf(tokens()[0]), rival: nameOf(tokens()[1]) })

  async function update(now) {
    const { run, now: after, cut, position, paired } = (drawn = now)
    const key = JSON.stringify([cut, position, chosen, more])
    if (shown.run === run && shown.after === after && shown.key === key) return
    shown = { run, after, key }
    const mine = shown
    const beyond = paired ? [await engine.ask("secondBest", { position })] : []
    const wanted = [...new Set([...run.next[position].slice(0, SHOWN).map(([token]) => token),
      ...(cut.length ? after.next[position].slice(0, AFTER).map(([token]) => token) : []), ...beyond, ...more, ...chosen])]
    const was = await engine.ask("measure", { cut: [], position, tokens: wanted })
    const is = cut.length ? await engine.ask("measure", { cut, position, tokens: wanted }) : null
    const there = paired && chosen.length > 1 ? await engine.ask("second", { position, tokens: chosen }) : null
    if (mine !== shown) return
    wanted.forEach((token, i) => names.set(token, was.names[i]))
    draw(run.tokens[position], wanted, was, is)
    say(wanted, was, is, there)
    table.classList.remove("mh-old")
  }

  function draw(token, wanted, was, is) {
    const held = table.contains(document.activeElement) ? Number(document.activeElement.value) : null
    const bar = (share, name) => element("span", "", { className: name, style: `width: ${(100 * share).toFixed(1)}%` })
    const order = wanted.map((_, i) => i).sort((one, other) => was.chances[other] - was.chances[one])
    const rows = order.map(i => {
      const role = tokens().indexOf(wanted[i])
      const press = element("button", was.names[i], { type: "button", value: wanted[i] }, { "aria-pressed": role >= 0 })
      const row = element("tr", [
        element("th", [press, ...(role < 0 ? [] : [" ", element("small", words.role[["answer", "rival"][role]])])], { scope: "row" }),
        element("td", [bar(was.chances[i], "mh-was"), ...(is ? [bar(is.chances[i], "mh-is")] : [])]),
        element("td", is ? `${percent(was.chances[i])} → ${percent(is.chances[i])}` : percent(was.chances[i])),
      ], { className: ["mh-answer", "mh-rival"][role] ?? "" })
      row.addEventListener("click", () => choose(wanted[i]))
      return row
    })
    table.replaceChildren(element("caption", filled(words.next, { token })), element("tbody", rows))
    if (held !== null) table.querySelector(`button[value="${held}"]`)?.focus()
  }

  /** What everything is measured by, and how far a patch has moved it. */
  function say(wanted, was, is, there) {
    const [answer, rival] = tokens()
    if (rival === undefined) return void (line.textContent = filled(words.answer_is, { answer: nameOf(answer) }))
    const difference = ({ logits }) => logits[wanted.indexOf(answer)] - logits[wanted.indexOf(rival)]
    const [first, after] = [difference(was), is && difference(is)]
    const second = there && there.logits[0] - there.logits[1]
    const plainly = x => two(Math.abs(x) < 0.005 ? 0 : x)
    const parts = { answer: nameOf(answer), rival: nameOf(rival), was: plainly(first), now: after === null ? "" : plainly(after) }
    line.textContent = [
      filled(after === null ? words.rival_is : words.rival_now, parts),
      ...(second === null ? [] : [filled(words.rival_second, { second: plainly(second) })]),
      ...(second === null || after === null ? [] : [filled(words.moved, { moved: plainly((first - after) / (first - second)) })]),
    ].join(punctuation.sentence_space)
  }

  function choose(token) {
    chosen = chosen.includes(token) ? chosen.filter(each => each !== token) : [...chosen.slice(0, 1), token]
    changed()
  }

  word.addEventListener("change", async () => {
    more = word.value.trim() ? await engine.ask("tokensOf", { word: word.value }) : []
    if (drawn) update(drawn)
  })

  return {
    table, line, word: element("label", [words.word, " ", word], { className: "mh-word" }), update, tokens,
    /** One number: by it an effect is measured. Without a rival the answer's log-probability, else the difference of both logits. */
    measured: ({ logits, chances }) => (chosen.length > 1 ? logits[0] - logits[1] : Math.log(chances[0])),
    /** The same as it is shown: a probability is one. */
    plain: ({ logits, chances }) => (chosen.length > 1 ? logits[0] - logits[1] : chances[0]),
    said: x => (chosen.length > 1 ? two(x) : percent(x)),
    measureOf,
    forget() { [chosen, more, word.value] = [[], [], ""] },
    get chosen() { return chosen },
    set chosen(given) { chosen = given },
  }
}
