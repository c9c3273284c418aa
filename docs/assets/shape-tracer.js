// What mhattn.inside.tracing.trace says of MultiHeadAttention, for sizes that the reader sets.
// trace() below is arithmetic on shapes and strides; a browser test compares it with Python's.

import { asked, element, filled, keep, mount, numberIn, teller } from "./dom.js"

const words = wordsOf("shape-tracer")

// Arguments in Python's names, with their symbols; what may be left empty has a default.
const FIELDS = [
  { name: "batch", symbol: "B", value: 1 },
  { name: "query_len", symbol: "L", value: 6 },
  { name: "key_len", symbol: "S", value: null },
  { name: "embed_dim", symbol: "E", value: 8 },
  { name: "num_heads", symbol: "H", value: 2 },
  { name: "num_kv_heads", symbol: "H_kv", value: null },
  { name: "head_dim", symbol: "D", value: null },
]

/** What Python says, and what the page says: which of its words, and what is put into them. */
class ArgumentError extends Error {
  constructor(message, why, parts) {
    super(message)
    Object.assign(this, { why, parts })
  }
}

function atLeast(name, number, least) {
  if (!Number.isInteger(number)) {
    const type = number === null ? "NoneType" : "float"
    throw new ArgumentError(`${name} must be an integer, got ${type}`, "whole", { name })
  }
  if (number < least) throw new ArgumentError(`${name} must be at least ${least}, got ${number}`, "least", { name, least })
}

function divides(name, number, what, size, why) {
  if (number < 1 || size % number) {
    throw new ArgumentError(`${name} must divide ${what}, ${size}, got ${number}`, why, { size, count: number })
  }
}

export const tuple = numbers => `(${numbers.join(", ")})`

const contiguous = shape =>
  shape.map((_, axis) => shape.slice(axis + 1).reduce((product, size) => product * size, 1))

// The strides of a view with another shape, or null where only a copy has it.
function viewStride(shape, stride, wanted) {
  const found = Array(wanted.length)
  let axis = wanted.length - 1
  let [base, ours, theirs] = [stride.at(-1), 1, 1]
  for (let old = shape.length - 1; old >= 0; old--) {
    ours *= shape[old]
    if (old > 0 && (shape[old - 1] === 1 || stride[old - 1] === ours * base)) continue
    while (axis >= 0 && (theirs < ours || wanted[axis] === 1)) {
      found[axis] = theirs * base
      theirs *= wanted[axis--]
    }
    if (theirs !== ours) return null
    if (old > 0) [base, ours, theirs] = [stride[old - 1], 1, 1]
  }
  return axis === -1 ? found : null
}

const swap = ([batch, first, second, last]) => [batch, second, first, last]

/** The steps of a forward pass, as mhattn.inside.tracing.trace lists them; throws what Python would say. */
export function trace(settings) {
  const { batch, query_len, embed_dim, num_heads } = settings
  for (const name of ["batch", "query_len"]) atLeast(name, settings[name], -Infinity)
  if (settings.key_len !== null) atLeast("key_len", settings.key_len, -Infinity)
  atLeast("embed_dim", embed_dim, 1)
  atLeast("num_heads", num_heads, 1)
  if (settings.head_dim === null) divides("num_heads", num_heads, "embed_dim", embed_dim, "cut")
  const num_kv_heads = settings.num_kv_heads ?? num_heads
  const head_dim = settings.head_dim ?? embed_dim / num_heads
  atLeast("num_kv_heads", num_kv_heads, 1)
  atLeast("head_dim", head_dim, 1)
  divides("num_kv_heads", num_kv_heads, "num_heads", num_heads, "share")

  const steps = []
  const add = (name, axes, shape, stride = contiguous(shape), of = null) => {
    steps.push({ name, axes, shape, stride, of })
    return steps.at(-1)
  }
  const inputs = [["query", "B L E", [batch, query_len, embed_dim]]]
  if (settings.key_len !== null) inputs.push(["key", "B S E", [batch, settings.key_len, embed_dim]])
  const small = ["batch", "query_len", "key_len"].find(name => settings[name] !== null && settings[name] < 1)
  if (inputs.flat(2).some(size => size < 0)) {
    throw new ArgumentError("zeros: Dimension size must be non-negative.", "least", { name: small, least: 1 })
  }
  for (const [name, axes, shape] of inputs) {
    if (shape.includes(0)) {
      throw new ArgumentError(`${name} must not be empty, got shape ${tuple(shape)}`, "least", { name: small, least: 1 })
    }
    add(name, axes, shape)
  }

  const key_len = settings.key_len ?? query_len
  const S = settings.key_len === null ? "L" : "S"
  const heads = num_kv_heads === num_heads ? "H" : "H_kv"
  for (const [letter, length, axis, count, symbol] of [
    ["q", query_len, "L", num_heads, "H"],
    ["k", key_len, S, num_kv_heads, heads],
    ["v", key_len, S, num_kv_heads, heads],
  ]) {
    const from = `${letter}_proj`
    const proj = add(from, `B ${axis} ${symbol}·D`, [batch, length, count * head_dim])
    const apart = [batch, length, count, head_dim]
    const stride = viewStride(proj.shape, proj.stride, apart)
    add(`split ${letter}`, `B ${symbol} ${axis} D`, swap(apart), swap(stride), from)
  }
  for (const letter of num_kv_heads === num_heads ? "" : "kv") {
    add(`repeat ${letter}`, `B H ${S} D`, [batch, num_heads, key_len, head_dim])
  }
  add("scores", `B H L ${S}`, [batch, num_heads, query_len, key_len])
  add("weights", `B H L ${S}`, [batch, num_heads, query_len, key_len])
  const mix = add("mix", "B H L D", [batch, num_heads, query_len, head_dim])
  const merged = [batch, query_len, num_heads * head_dim]
  const joined = viewStride(swap(mix.shape), swap(mix.stride), merged)
  add("merge", "B L H·D", merged, joined ?? undefined, joined && "mix")
  add("out_proj", "B L E", [batch, query_len, embed_dim])
  return steps
}

/** A line of Python that prints the same table. */
export function python({ batch, query_len, key_len, embed_dim, num_heads, ...options }) {
  const given = Object.entries(options).filter(([, value]) => value !== null)
  const layer = [embed_dim, num_heads, ...given.map(([name, value]) => `${name}=${value}`)]
  const inputs = [query_len, key_len].filter(length => length !== null)
  const zeros = inputs.map(length => `torch.zeros(${batch}, ${length}, ${embed_dim})`)
  return `print(trace(MultiHeadAttention(${layer.join(", ")}), ${zeros.join(", ")}))`
}

function show(place) {
  const query = asked()
  const fields = FIELDS.map(({ name, value }) =>
    element("input", "", { name, type: "number", step: "any", defaultValue: value ?? "", value: query.get(name) ?? value ?? "" }))
  const labels = fields.map((field, i) =>
    element("label", [element("code", field.name), " ", ...letters(FIELDS[i].symbol), field]))
  const isNeeded = FIELDS.map(({ value }) => value !== null)
  const strides = element("input", "", { type: "checkbox", name: "strides", checked: query.has("strides") })
  const more = element("details", [
    element("summary", words.more),
    element("div", labels.filter((_, i) => !isNeeded[i]), { className: "mh-fields" }),
    element("label", [strides, " ", words.strides]),
  ], { open: strides.checked || fields.some((field, i) => !isNeeded[i] && field.value) })
  const form = element("form", [
    ...labels.filter((_, i) => isNeeded[i]), more,
    element("button", words.reset, { type: "reset", className: "md-button" }),
  ])
  const refused = element("p", "", { hidden: true }, { role: "alert" })
  const result = element("div", "", { className: "mh-widget-result" })
  const { place: told, tell } = teller()

  let last = Object.fromEntries(FIELDS.map(({ name, value }) => [name, value]))
  function update() {
    const settings = Object.fromEntries(fields.map((field, i) =>
      [field.name, numberIn(field, isNeeded[i] ? last[field.name] : null)]))
    for (const field of fields) field.placeholder = defaults(settings)[field.name] ?? ""
    try {
      const steps = trace(settings)
      result.replaceChildren(table(steps, strides.checked), code(python(settings)))
      tell(steps.map(({ name, shape }) => `${name} ${tuple(shape)}`).join(", "))
      last = settings
      refused.hidden = true
    } catch (error) {
      if (!(error instanceof ArgumentError)) throw error
      refused.textContent = filled(words.errors[error.why], error.parts)
      refused.hidden = false
    }
    result.classList.toggle("mh-old", !refused.hidden)  // what stands there is of sizes before
  }
  const remember = () => keep({
    ...Object.fromEntries(fields.map(({ name, value, defaultValue }) => [name, value === defaultValue || !value ? null : value])),
    strides: strides.checked ? 1 : null,
  })
  form.addEventListener("input", update)
  form.addEventListener("change", remember)
  form.addEventListener("reset", () => setTimeout(() => { update(); remember() }))
  form.addEventListener("submit", event => event.preventDefault())
  place.replaceChildren(form, refused, result, told)
  update()
}

// What an empty field stands for.
const defaults = ({ query_len, num_heads, embed_dim }) => ({
  key_len: query_len,
  num_kv_heads: num_heads,
  head_dim: Number.isInteger(embed_dim / num_heads) ? embed_dim / num_heads : "",
})

function table(steps, more) {
  const titles = ["step", "axes", "shape", ...(more ? ["stride", "memory"] : [])].map(name => words.columns[name])
  const rows = steps.map(({ name, axes, shape, stride, of }) => {
    const cells = [element("code", name), letters(axes), tuple(shape)]
    if (more) cells.push(tuple(stride), of ? filled(words.view, { name: of }) : words.own)
    return element("tr", cells.map(cell => element("td", cell)), { className: of ? "mh-view" : "" })
  })
  const head = element("thead", element("tr", titles.map(title => element("th", title, { scope: "col" }))))
  return element("table", [head, element("tbody", rows)], { className: "mh-table" }, { "aria-label": words.steps })
}

// Symbols in italics, as in formulas: "B H_kv" has a subscript.
function letters(symbols) {
  return symbols.split(/(?<=[ ·])/).map(symbol => {
    const [, letter, index, gap] = symbol.match(/^(\w)(?:_(\w+))?(.*)$/)
    return element("span", [element("i", letter), ...(index ? [element("sub", index)] : []), gap])
  })
}

const code = line => element("p", [words.same, element("code", line)])

mount("shape-tracer", show)
