// What a cell printed, in the form that the page gives it: tables as tables, all else as it stands.

import { element } from "./dom.js"

const TABLE = /^\|.*\|\n\|(?:-+:?\|)+(?:\n\|.*\|)*$/gm

/** The elements of a text that a cell printed. */
export function shown(text) {
  const parts = []
  let end = 0
  for (const match of text.matchAll(TABLE)) {
    parts.push(...plain(text.slice(end, match.index)), table(match[0]))
    end = match.index + match[0].length
  }
  return [...parts, ...plain(text.slice(end))]
}

const plain = text => (text.trim() ? [element("pre", text.replace(/^\n+|\n+$/g, ""), { className: "mh-output" }, { tabindex: 0 })] : [])

const cellsOf = line => line.replace(/^\||\|$/g, "").split("|").map(cell => cell.trim())

function table(text) {
  const [head, dashes, ...rows] = text.split("\n").map(cellsOf)
  const heads = !dashes[0].endsWith(":")
  const top = head.map((name, i) => (heads && !i && !name ? element("td") : element("th", name, {}, { scope: "col" })))
  const lines = rows.map(row => element("tr", row.map((cell, i) => (heads && !i ? element("th", cell, {}, { scope: "row" }) : element("td", cell)))))
  const made = element("table", [element("thead", element("tr", top)), element("tbody", lines)], { className: "mh-output" })
  return element("div", made, { className: "mh-scroll" }, { tabindex: 0 })
}

/** A map of weights as a table: the larger a number, the more opaque its cell. */
shown.map = ({ rows, queries, keys, texts, largest, color, title }) => {
  const names = keys ? [element("thead", element("tr", [...(queries ? [element("td")] : []), ...keys.map(key => element("th", key, {}, { scope: "col" }))]))] : []
  const lines = rows.map((row, i) => {
    const cells = row.map((number, j) => {
      const cell = element("td", texts?.[i][j] ?? "", { title: number.toFixed(3) })
      cell.style.setProperty("--share", Math.min(1, Math.abs(number) / largest))
      if (number < 0) cell.className = "mh-negative"
      return cell
    })
    return element("tr", [...(queries ? [element("th", queries[i], {}, { scope: "row" })] : []), ...cells])
  })
  const made = element("table", [...(title ? [element("caption", title)] : []), ...names, element("tbody", lines)], { className: "mh-output mh-run-map" })
  made.style.setProperty("--ink", color)
  return element("div", made, { className: "mh-scroll" }, { tabindex: 0 })
}

const written = part => {
  const rows = [...part.querySelectorAll("tr")]
  return rows.length ? rows.map(row => [...row.cells].map(cell => cell.textContent.trim()).join("|")).join("\n") : part.textContent.trimEnd()
}

/** Whether a text shows as these elements of the page do. */
export const same = (text, printed) => shown(text).map(written).join("\n") === printed.map(written).join("\n")
