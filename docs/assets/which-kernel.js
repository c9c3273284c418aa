// Which kernels take a call: what the two tables of the page say, asked together. A test compares takes() with Python.

import { asked, element, filled, keep, mount, teller } from "./dom.js"

const words = wordsOf("which-kernel")
const GPUS = [["V100", 7.0], ["T4", 7.5], ["A100", 8.0], ["RTX 30", 8.6], ["RTX 40", 8.9], ["H100, H200", 9.0], ["B200", 10.0], ["RTX 50", 12.0]]
const BITS = ["16", "32", "8"]
// The columns behind the kernel's name, in both tables.
const WHAT = ["mask", "biasGradient", "window", "cap", "sink", "groups", "sizeOfV"]
const WHERE = ["layout", "bits", "capability", "backward", "packed", "lse"]
const ASKED = [...WHAT, "backward", "packed", "lse"]

/** Whether a table's "8.0–12.1", "9.0,10.x" or "8.0+" has this compute capability. */
export function has(range, capability) {
  return range === "✓" || range === "Triton" || range.split(",").some(part => {
    const [low, high] = part.replace("+", "–99").split("–")
    const top = Number((high ?? low).replace(".x", ".9"))
    return Number(low.replace(".x", ".0")) <= capability && capability <= top
  })
}

/** What hinders a kernel, by the names of what is asked; and what it takes in another form. */
export function takes(row, { capability, bits, wants }) {
  const hinders = [], otherwise = []
  const each = row.bits.split(",").find(entry => entry.replace("→", "") === bits)
  if (!has(row.capability, capability)) hinders.push("capability")
  if (!each || (each.includes("→") && wants.includes("backward"))) hinders.push("bits")
  for (const name of wants) {
    const entry = row[name]
    if (name === "backward" && entry.endsWith("+")) {
      if (!has(entry, capability)) hinders.push(name)
    } else if (entry === "–" || (entry.endsWith("→") && wants.includes("backward"))) hinders.push(name)
    else if (!["✓", "→"].includes(entry)) otherwise.push([name, entry.replace("→", "")])
  }
  return { hinders, otherwise }
}

/** The rows of both tables, by the kernel's name. */
export function rowsOf(tables) {
  const rows = {}
  for (const [table, columns] of [[tables[0], WHAT], [tables[1], WHERE]])
    for (const line of table) rows[line[0]] = { ...rows[line[0]], ...Object.fromEntries(columns.map((name, i) => [name, line[i + 1]])) }
  return rows
}

const cells = table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent.trim()))

mount("which-kernel", place => {
  const shown = [...document.querySelectorAll("article table.mh-output")].map(cells).filter(rows => rows[0][0] === "MATH" && rows.length > 6)
  const rows = rowsOf(shown)
  const query = asked()
  const select = (name, options, value) => element("select", options.map(([key, shown]) => new Option(shown, key, false, key === value)), { name })
  const labelled = (text, field) => element("label", [text, field])
  const gpu = select("gpu", GPUS.map(([name, capability]) => [String(capability), `${name} (${capability.toFixed(1)})`]), query.get("gpu") ?? "9")
  const bits = select("bits", BITS.map(name => [name, filled(words.bits, { bits: name })]), query.get("bits") ?? "16")
  const chosen = query.get("with")?.split(" ") ?? []
  const boxes = ASKED.map(name => element("input", "", { type: "checkbox", name, checked: chosen.includes(name) }))
  const form = element("form", [
    labelled(words.gpu, gpu), labelled(words.numbers, bits),
    element("fieldset", [element("legend", words.call), ...boxes.map((box, i) => element("label", [box, ` ${words.asked[i]}`]))], { className: "mh-checks" }),
  ])
  const result = element("div", "", { className: "mh-widget-result" })
  const { place: told, tell } = teller()
  const named = name => words.asked[ASKED.indexOf(name)] ?? words.hinders[name]

  function update() {
    const wants = ASKED.filter((_, i) => boxes[i].checked)
    const call = { capability: Number(gpu.value), bits: bits.value, wants }
    const lines = Object.entries(rows).map(([kernel, row]) => ({ kernel, ...takes(row, call) }))
    const takers = lines.filter(line => !line.hinders.length)
    const others = lines.filter(line => line.hinders.length)
    const row = ({ kernel, hinders, otherwise }) => element("tr", [
      element("th", kernel, { scope: "row" }),
      element("td", hinders.length ? `– ${hinders.map(named).join(words.comma)}` : ["✓", ...otherwise.map(([name, entry]) => `${named(name)} ${entry}`)].join(" ")),
    ], { className: hinders.length ? "mh-off" : "" })
    result.replaceChildren(
      element("p", filled(words.takers, { number: takers.length, all: lines.length })),
      element("table", element("tbody", [...takers, ...others].map(row)), { className: "mh-table" }, { "aria-label": words.call }),
    )
    tell(filled(words.told, { kernels: takers.map(line => line.kernel).join(words.comma) || words.none }))
  }
  const remember = () => keep({
    gpu: gpu.value === "9" ? null : gpu.value, bits: bits.value === "16" ? null : bits.value,
    with: ASKED.filter((_, i) => boxes[i].checked).join(" ") || null,
  })
  form.addEventListener("input", () => { update(); remember() })
  form.addEventListener("submit", event => event.preventDefault())
  place.replaceChildren(form, result, told)
  update()
})
