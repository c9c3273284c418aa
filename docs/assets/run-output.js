// What a cell printed, in the form that the page gives it: tables as tables, all else as it stands.

import { element, filled, punctuation } from "./dom.js"

const words = wordsOf("run-output")
const grids = new URL("grids.js", import.meta.url).href

const TABLE = /^\|.*\|\n\|(?:-+:?\|)+(?:\n\|.*\|)*$/gm

/** The elements of a text that a cell printed; `made` says what the cells of its tables are made of. */
export function shown(text, made = {}) {
  const parts = []
  let end = 0
  for (const match of text.matchAll(TABLE)) {
    parts.push(...plain(text.slice(end, match.index)), table(match[0], made[match[0]]))
    end = match.index + match[0].length
  }
  return [...parts, ...plain(text.slice(end))]
}

const plain = text => (text.trim() ? [element("pre", text.replace(/^\n+|\n+$/g, ""), { className: "mh-output" }, { tabindex: 0 })] : [])

const cellsOf = line => line.replace(/^\||\|$/g, "").split("|").map(cell => cell.trim())

function table(text, grid) {
  const [head, dashes, ...rows] = text.split("\n").map(cellsOf)
  const heads = !dashes[0].endsWith(":")
  const top = head.map((name, i) => (heads && !i && !name ? element("td") : element("th", name, {}, { scope: "col" })))
  const lines = rows.map(row => element("tr", row.map((cell, i) => (heads && !i ? element("th", cell, {}, { scope: "row" }) : element("td", cell)))))
  const made = element("table", [element("thead", element("tr", top)), element("tbody", lines)], { className: "mh-output" })
  if (grid) {
    made.dataset.grid = JSON.stringify(grid)
    lightUp(made)
  }
  return element("div", made, { className: "mh-scroll" }, { tabindex: 0 })
}

/** What a cell drew, each picture as an element; and a sentence about what is missing in them. */
export function pictures({ pictures, missing }) {
  const parts = pictures.map(({ svg, about, need }) => {
    const place = element("div", "", { className: need ? "mh-scroll mh-wide" : "mh-drawn", innerHTML: svg })
    const picture = place.firstElementChild
    picture.setAttribute("aria-label", about ? `${words.drawn}${punctuation.colon}${about}` : words.drawn)
    if (need) {
      place.tabIndex = 0
      place.style.setProperty("--mh-need", `${need}px`)
    }
    if (picture.querySelector("[data-grid]")) lightUp(picture)
    return place
  })
  if (missing.length) parts.push(element("p", filled(words.undrawn, { names: missing.join(", ") }), { className: "mh-note" }))
  return parts
}

/** Once it stands in the page, it does under the hand what the page's own do. A page without such has no script for it yet. */
async function lightUp(made) {
  await null
  if (document.querySelector('script[src$="grids.js"]')) made.dispatchEvent(new Event("mhattn-made", { bubbles: true }))
  else document.head.append(element("script", "", { type: "module", src: grids }))
}

const written = part => {
  const rows = [...part.querySelectorAll("tr")]
  return rows.length ? rows.map(row => [...row.cells].map(cell => cell.textContent.trim()).join("|")).join("\n") : part.textContent.trimEnd()
}

/** Whether a text shows as these elements of the page do. */
export const same = (text, printed) => shown(text).map(written).join("\n") === printed.map(written).join("\n")
