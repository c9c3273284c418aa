// The words of a sentence as buttons, with lines to those that a word takes from.

import { element } from "./dom.js"

/** Lines from a word to those it takes from, and a loop for itself, in a strip above or below the words. */
function arcs(strip, row, from, below) {
  const paths = row.map((weight, j) => {
    if (weight < 0.005) return ""
    const [x, to] = [from, j].map(place => place * 100 + 50)
    const height = 12 + 9 * Math.abs(from - j)
    const [base, top] = below ? [2, 2 + height] : [58, 58 - height]
    const bend = j === from ? `C${x - 30} ${2 * top - base} ${x + 30} ${2 * top - base}` : `Q${(x + to) / 2} ${2 * top - base}`
    return `<path d="M${x} ${base}${bend} ${to} ${base}" stroke-width="${(8 * weight).toFixed(2)}"/>`
  })
  strip.innerHTML = paths.join("")
}

function strip(head) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg")
  made.setAttribute("viewBox", "0 0 600 60")
  made.setAttribute("preserveAspectRatio", "none")
  made.setAttribute("class", `mh-arcs mh-head-${head + 1}`)
  made.setAttribute("aria-hidden", "true")
  return made
}

/** A button for each word, between a strip for each head, of which there are one or two. */
export function sentence(words, choose, count = 2) {
  const strips = [strip(0), strip(1)].slice(0, count)
  const buttons = words.map((word, i) => {
    const button = element("button", word, { type: "button" })
    button.addEventListener("click", () => choose(i))
    return button
  })
  const row = element("div", buttons, { className: "mh-words" })
  const place = element("div", [strips[0], row, ...strips.slice(1)], { className: "mh-sentence" })
  const update = (word, results) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === word))
    results.forEach(({ weights }, h) => arcs(strips[h], weights[word], word, h === 1))
  }
  return { place, update }
}
