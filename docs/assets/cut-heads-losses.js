// The text's tokens: a click chooses a position. Under each its loss, as a number on a colour, and below that its loss after the cuts.

import { element, filled, two } from "./dom.js"

const words = wordsOf("cut-heads-losses")
const FULL = 8  // nats that have the full colour
const signed = x => (Math.abs(x) < 0.005 ? "±" : x > 0 ? "+" : "−") + two(Math.abs(x))

export function tokenRow(choose) {
  const row = element("div", "", { className: "mh-tokens mh-with-losses" }, { role: "group", "aria-label": words.choose })
  const line = element("p", "", { className: "mh-limit" })
  let now = null

  function update(given) {
    now = given
    const { run, after, cut, word, weight } = now
    row.replaceChildren(...run.tokens.map((token, i) => {
      const press = element("button", token, { type: "button" }, { "aria-pressed": i === word })
      press.style.setProperty("--weight", `${100 * weight(i)}%`)
      press.addEventListener("click", () => choose(i))
      const losses = i ? [run.losses[i - 1], ...(cut.length ? [after.losses[i - 1]] : [])] : ["–", ...(cut.length ? ["–"] : [])]
      const place = element("span", [press, ...losses.map(lossCell)], { className: "mh-token" })
      for (const type of ["pointerenter", "focusin", "click"]) place.addEventListener(type, () => say(i))
      return place
    }))
    say(null)
  }

  function lossCell(loss) {
    const cell = element("span", loss === "–" ? loss : loss.toFixed(1), { className: "mh-loss" })
    if (loss !== "–") cell.style.setProperty("--loss", `${Math.min(100, 100 * loss / FULL)}%`)
    return cell
  }

  /** Of one token both numbers; of none, what the numbers are. */
  function say(i) {
    const { run, after, cut } = now
    if (!i) return void (line.textContent = filled(i === 0 ? words.loss_first : cut.length ? words.losses_now : words.losses, { token: run.tokens[0], count: cut.length }))
    const [was, is] = [run.losses[i - 1], after.losses[i - 1]]
    line.textContent = filled(cut.length ? words.loss_token_now : words.loss_token, { token: run.tokens[i], was: two(was), now: two(is), more: signed(is - was), count: cut.length })
  }
  row.addEventListener("pointerleave", () => now && say(null))

  return { place: element("div", [row, line]), line, update, focus: i => row.querySelectorAll("button")[i]?.focus() }
}
