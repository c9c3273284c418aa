// What serving a model takes, for sizes that the reader sets. All counting is in costs.js; known-sizes.js, with the
// known models and accelerators, and the form, its words and its first answers, which are in the page already, are
// written by scripts/mhsite/pages/calculator.py.

import { kindCost, servingCost } from "./costs.js"
import { element, filled, mount } from "./dom.js"
import { DEVICES, MODELS } from "./known-sizes.js"

const words = wordsOf("calculator")
const NONE = "–"
const DEFAULTS = { model: "llama-3.1-8b", device: "h100", tokens: "8192", batch: "1", weight_bits: "16", cache_bits: "16", devices: "" }
const KIND = ["layers", "num_heads", "num_kv_heads", "head_dim", "window", "kv_lora_rank", "q_lora_rank",
  "qk_rope_head_dim", "v_head_dim", "index_heads", "index_dim", "top_keys"]
const MLP = ["dim", "matrices", "experts", "per_token", "shared", "expert_dim", "dense_layers", "expert_layers", "expert_embed"]
const WHOLE = ["embed_dim", "vocabulary", "learned_positions"]
const SCALES = { memory: 10n ** 9n, bandwidth: 10n ** 9n, flops: 10n ** 12n }
const BYTES = ["bytes", "KiB", "MiB", "GiB", "TiB"]
const TIMES = ["ns", "µs", "ms", "s"]

/** What a reader did not mean to type: said beside the field. */
class Refused extends Error {
  constructor(name, why, parts = {}) {
    super(why)
    Object.assign(this, { name, why, parts })
  }
}

const UNITS = { "": 1n, k: 1000n, m: 10n ** 6n, g: 10n ** 9n, b: 10n ** 9n, ki: 1024n, mi: 1024n ** 2n, gi: 1024n ** 3n, 千: 1000n, 万: 10n ** 4n, 亿: 10n ** 8n }

/**
 * The number that a text stands for, times `scale`, as a BigInt; null if it stands for none.
 *
 * Digits may be grouped by commas, spaces or underscores, and full-width; 1e6 and 128k are numbers. Of tokens,
 * k and M are 1024 and 1024², as in the names of context lengths.
 */
export function parse(text, { scale = 1n, tokens = false } = {}) {
  const plain = text.normalize("NFKC").trim().toLowerCase().replace(/[，、]/g, ",")
  const found = /^(\d{1,3}(?:([,_' ])\d{3})(?:\2\d{3})*|\d+(?:_\d+)*)(?:\.(\d+))?(?:e\+?(\d{1,2}))? ?(k|m|g|b|ki|mi|gi|千|万|亿|)(?: ?(?:tokens?|词元))?$/.exec(plain)
  if (!found) return null
  const [, whole, , part = "", power = "0", unit] = found
  const size = UNITS[tokens && /^[km]$/.test(unit) ? `${unit}i` : unit]
  const digits = BigInt(whole.replace(/\D/g, "") + part) * 10n ** BigInt(power) * size * scale
  const divisor = 10n ** BigInt(part.length)
  return digits % divisor === 0n ? digits / divisor : null
}

const grouped = number => String(number).replace(/\B(?=(\d{3})+$)/g, ",")

/** Three digits and a unit. */
export function scaled(number, base, units) {
  let [rest, unit] = [Number(number), 0]
  while (rest >= 0.9995 * base && unit < units.length - 1) [rest, unit] = [rest / base, unit + 1]
  const text = unit ? rest.toPrecision(rest >= 999.5 ? 4 : 3) : String(rest)
  return `${text} ${units[unit]}`.trim()
}

/** Three digits, grouped by thousands. */
export const significant = number => (number < 99.95 ? number.toPrecision(3) : grouped(Number(number.toPrecision(3))))

const bytes = number => scaled(number, 1024, BYTES)
const time = number => scaled(number, 1000, TIMES)
const counted = number => scaled(number, 1000, ["", "K", "M", "G", "T", "P", "E", "Z"])
/** The same with BigInts, as costs.js counts with them. */
const exact = x => {
  if (Array.isArray(x)) return x.map(exact)
  if (typeof x === "number") return BigInt(x)
  if (x === null || typeof x !== "object") return x
  return Object.fromEntries(Object.entries(x).map(([name, of]) => [name, exact(of)]))
}
const models = MODELS.map(exact)
const chips = DEVICES.map(exact)
const modelOf = name => models.find(model => model.name === name)
const deviceOf = name => chips.find(device => device.name === name)

/** The fields of a model, by the names that they have in the form and in the address. */
export function fieldsOf(model) {
  const text = size => (size === null || size === undefined ? "" : String(size))
  const kinds = model.kinds.flatMap((kind, i) =>
    KIND.filter(name => shownIn(kind, name, model)).map(name => [`${name}.${i}`, text(kind[name])]))
  const mlp = MLP.map(name => [`mlp.${name}`, text(model.mlp?.[name])])
  return Object.fromEntries([...kinds, ...mlp, ...WHOLE.map(name => [name, text(model[name])]), ["tied", text(model.tied)]])
}

// A kind of layers shows the sizes that it has; a latent's only where some layers have one.
const shownIn = (kind, name, model) =>
  KIND.indexOf(name) < 4 || (name === "window" ? kind.sees !== "state"
    : kind.sees !== "state" && model.kinds.some(kind => name.startsWith("index") || name === "top_keys" ? kind.top_keys : kind.kv_lora_rank))

/** The same of a device, in the units of the form. */
export const fieldsOfDevice = device =>
  Object.fromEntries(Object.entries(SCALES).map(([name, scale]) => [name, String(Number(device[name]) / Number(scale))]))

/** The sizes that the texts of the form stand for, as `servingCost` takes them. */
export function read(texts) {
  const model = modelOf(texts.model)
  const size = (name, least, empty) => {
    const text = texts[name] ?? ""
    if (text.trim() === "" && empty !== undefined) return empty
    const value = parse(text, { scale: SCALES[name], tokens: name === "tokens" })
    if (value === null) throw new Refused(name, name in SCALES ? "number" : "whole", { text })
    if (value < least) throw new Refused(name, "least", { least, text })
    if (String(value).length > 24) throw new Refused(name, "most", { most: "10^24", text })
    return value
  }
  const embed_dim = size("embed_dim", 1n)
  const kinds = model.kinds.map((kind, i) => {
    const changed = KIND.filter(name => `${name}.${i}` in texts).map(name => {
      const optional = KIND.indexOf(name) >= 4
      const zero = name === "qk_rope_head_dim" || name.startsWith("index")
      return [name, size(`${name}.${i}`, zero ? 0n : 1n, optional ? (zero ? 0n : null) : undefined)]
    })
    const sizes = { ...kind, ...Object.fromEntries(changed) }
    if (sizes.num_heads % sizes.num_kv_heads !== 0n) {
      throw new Refused(`num_kv_heads.${i}`, "divides", { text: texts[`num_kv_heads.${i}`], other: `num_heads.${i}`, size: sizes.num_heads })
    }
    return sizes
  })
  const mlp = Object.fromEntries(MLP.map(name => {
    const least = name === "matrices" || name === "expert_embed" ? 1n : 0n
    const empty = ["dim", "matrices", "expert_layers", "expert_embed"].includes(name) ? null : 0n
    return [name, size(`mlp.${name}`, least, empty)]
  }))
  const count = kinds.reduce((sum, kind) => sum + kind.layers, 0n)
  if (mlp.per_token > mlp.experts) throw new Refused("mlp.per_token", "most", { most: mlp.experts, text: texts["mlp.per_token"] })
  for (const name of ["dense_layers", "expert_layers"]) {
    if (mlp[name] > count) throw new Refused(`mlp.${name}`, "most", { most: count, text: texts[`mlp.${name}`] })
  }
  return {
    kinds, embed_dim, mlp: mlp.matrices === null ? null : mlp, vocabulary: size("vocabulary", 1n, null),
    tied: texts.tied === "" ? null : texts.tied === "true", tokens: size("tokens", 1n), batch: size("batch", 1n),
    weight_bits: BigInt(texts.weight_bits), cache_bits: BigInt(texts.cache_bits), devices: BigInt(texts.devices || 0),
    device: Object.fromEntries(Object.keys(SCALES).map(name => [name, size(name, 1n)])),
    causal: model.kind === "decoder", learned_positions: size("learned_positions", 0n, 0n),
  }
}

const NO_MLP = { dim: 0n, matrices: 0n, experts: 0n }

/** All counts; where the sources don't give all sizes, those of attention and its cache alone. */
export function count(sizes) {
  const kinds = sizes.kinds.map(kind => kindCost(sizes.embed_dim, kind))
  const { mlp, vocabulary, tied } = sizes
  if (mlp !== null && vocabulary !== null && tied !== null) return servingCost(kinds, sizes)
  const { cache_bytes, token_bytes, attention_parameters } =
    servingCost(kinds, { ...sizes, mlp: mlp ?? NO_MLP, vocabulary: vocabulary ?? 0n })
  return { cache_bytes, token_bytes, attention_parameters }
}

/** Whether somebody changed a number of the device. */
const isOwn = (sizes, chip) => Object.entries(sizes.device).some(([name, of]) => chip[name] !== of)

/** What a device is called: one whose numbers were changed has no other name. */
const nameOf = (sizes, chip) => (isOwn(sizes, chip) ? words.your_device : chip.title)

/** Lines of Python that count the same. */
export function python(sizes, chip) {
  const value = of => (of === null ? "None" : of === true ? "True" : of === false ? "False" : typeof of === "string" ? `"${of}"` : String(of))
  const given = (sizes, sign = "=") => Object.entries(sizes).filter(([, size]) => size !== null && size !== undefined)
    .map(([name, size]) => `${name}${sign}${value(size)}`)
  const lines = (parts, indent) => parts.map(part => `${indent}${part},`).join("\n")
  const kinds = sizes.kinds.map(kind => `    kind_cost(\n${lines([value(sizes.embed_dim), ...given(kind)], "        ")}\n    ),`)
  const own = isOwn(sizes, chip)
  const { embed_dim, vocabulary, tied, tokens, batch, weight_bits, cache_bits, devices, causal, learned_positions } = sizes
  const run = { embed_dim, vocabulary, tied, tokens, batch, weight_bits, cache_bits, devices, causal, learned_positions }
  const device = own ? `replace(known_accelerator("${chip.name}"), ${given(sizes.device).join(", ")})` : `known_accelerator("${chip.name}")`
  return `${own ? "from dataclasses import replace\n\n" : ""}from mhattn.costs import MlpSizes, kind_cost, known_accelerator, serving_cost

kinds = [
${kinds.join("\n")}
]
cost = serving_cost(
    kinds,
    mlp=MlpSizes(${given(sizes.mlp ?? {}).join(", ")}),
    device=${device},
${lines(given(run), "    ")}
)
print(cost)
`
}

/** What stands in the three answers, and below them. */
function answers(sizes, cost, texts) {
  const several = sizes.batch > 1n
  const both = (one, all, write) => [write(one), words.one + (several ? ` · ${write(all)} ${filled(words.all, { count: grouped(sizes.batch) })}` : "")]
  const rate = (batch, nanoseconds) => significant((1e9 * Number(batch)) / Math.max(1, Number(nanoseconds)))
  const found = { cache: [bytes(cost.cache_bytes), filled(words.added, { size: bytes(cost.token_bytes) })] }
  if (!sizes.causal) found.cache = [NONE, ""]
  if (cost.weight_bytes === undefined) return { ...found, memory: [NONE, ""], prompt: [NONE, ""], rate: [NONE, ""] }
  found.memory = [bytes(cost.weight_bytes + cost.cache_bytes), verdict(sizes, cost, nameOf(sizes, deviceOf(texts.device)))]
  if (cost.device_bytes > sizes.device.memory) return { ...found, prompt: [NONE, ""], rate: [NONE, ""] }
  found.prompt = both(cost.prompt_nanoseconds, cost.prompts_nanoseconds, time)
  found.rate = !sizes.causal ? [NONE, ""] : [rate(1n, cost.step_nanoseconds),
    words.one + (several ? ` · ${rate(sizes.batch, cost.steps_nanoseconds)} ${filled(words.all, { count: grouped(sizes.batch) })}` : "")]
  return found
}

function verdict(sizes, cost, device) {
  const parts = { device, count: cost.devices, fewest: cost.fewest, left: bytes(sizes.device.memory - cost.device_bytes) }
  if (cost.fewest === null) return filled(words.never, parts)
  if (cost.device_bytes > sizes.device.memory) return filled(words.short, parts)
  if (cost.devices === 1n) return filled(words.fits, parts)
  return filled(sizes.devices === 0n ? words.shared : words.fits_many, parts)
}

function notes(sizes, cost, model) {
  const parameters = cost.weight_bytes === undefined ? 0n : cost.attention_parameters + cost.mlp_parameters + cost.vocabulary_parameters
  const published = model.published_parameters ?? parameters
  const far = parameters && Math.abs(Number(parameters) / Number(published) - 1) > 0.02
  const missing = [["mlp.matrices", sizes.mlp], ["vocabulary", sizes.vocabulary], ["tied", sizes.tied]].filter(([, size]) => size === null)
  return [
    missing.length ? filled(words.unknown, { names: missing.map(([name]) => labelOf(name)).join(", ") }) : "",
    sizes.causal ? "" : words.encoder,
    sizes.kinds.some(kind => kind.sees === "state") ? words.state : "",
    sizes.mlp?.experts > 0n ? words.experts : "",
    far ? filled(words.differs, { published: counted(published), counted: counted(parameters) }) : "",
  ].filter(note => note).join(" ")
}

const labelOf = name => {
  const plain = name.replace(/^mlp\.|\.\d+$/g, "")
  return words.fields[plain] ?? words.form[plain]
}

const ROWS = ["attention_parameters", "mlp_parameters", "vocabulary_parameters", "parameters", "active_parameters", "weight_bytes",
  "token_bytes", "cache_bytes", "device_bytes", "prompt_flops", "score_flops", "training_flops", "step_flops", "step_nanoseconds", "steps_nanoseconds"]

function table(sizes, cost) {
  const known = cost.weight_bytes !== undefined
  const all = known ? { ...cost, parameters: cost.attention_parameters + cost.mlp_parameters + cost.vocabulary_parameters, training_flops: 3n * cost.prompt_flops } : cost
  const rows = ROWS.filter(name => all[name] !== undefined && all[name] !== null).map(name => {
    const short = name.endsWith("bytes") ? bytes(all[name]) : name.endsWith("nanoseconds") ? time(all[name]) : counted(all[name])
    const share = name === "score_flops" && known ? ` (${filled(words.share, { share: (100 * Number(cost.score_flops) / Number(cost.prompt_flops)).toPrecision(3) })})` : ""
    return element("tr", [element("th", words.rows[name], { scope: "row" }), element("td", [element("b", short), share, element("small", grouped(all[name]))])], {}, { "data-name": name })
  })
  const { num_heads, num_kv_heads, head_dim } = sizes.kinds.find(kind => kind.sees !== "state") ?? sizes.kinds[0]
  const { batch, tokens } = sizes
  const shapes = Object.entries({ Q: [batch, num_heads, tokens, head_dim], K: [batch, num_kv_heads, tokens, head_dim], V: [batch, num_kv_heads, tokens, head_dim] })
    .map(([name, shape]) => element("tr", [element("th", name, { scope: "row" }), element("td", `(${shape.join(", ")})`)]))
  const latent = sizes.kinds.some(kind => kind.kv_lora_rank)
  return element("table", element("tbody", latent ? rows : [...rows, ...shapes]), { className: "mh-table" })
}

const LENGTHS = Array.from({ length: 16 }, (_, i) => 128n * 2n ** BigInt(i))

function charts(sizes, { devices }) {
  const costs = LENGTHS.map(tokens => count({ ...sizes, tokens }))
  const per = (cost, flops, i) => Number(flops) / Number(LENGTHS[i] * sizes.batch)
  const cache = costs.map(cost => Number(cost.cache_bytes))
  const weights = costs.map(cost => Number(cost.weight_bytes ?? 0))
  const room = Number((devices ?? 1n) * sizes.device.memory)
  const found = [chart(words.chart_bytes, sizes.tokens, bytes, 4, [
    { name: words.lines.both, style: "mh-line-1", values: cache.map((size, i) => size + weights[i]) },
    { name: words.lines.cache, style: "mh-line-2", values: cache },
    { name: words.lines.room, style: "mh-line-room", values: cache.map(() => room) },
  ], Math.min(room / 64, Math.max(...cache) / 2))]
  if (costs[0].prompt_flops === undefined) return found
  return [chart(words.chart_flops, sizes.tokens, counted, 10, [
    { name: words.lines.scores, style: "mh-line-2", values: costs.map((cost, i) => per(cost, cost.score_flops, i)) },
    { name: words.lines.rest, style: "mh-line-3", values: costs.map((cost, i) => per(cost, cost.prompt_flops - cost.score_flops, i)) },
  ]), ...found]
}

const svg = (tag, data, content = []) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(data)) made.setAttribute(name, value)
  made.append(...[content].flat())
  return made
}

/** Lines over lengths, both axes logarithmic; each line is named at its end. Below `least`, nothing is shown. */
function chart(title, tokens, unit, base, lines, least = 0) {
  const log = value => Math.log(value) / Math.log(base)
  const shown = lines.filter(line => line.values.some(value => value > 0))
  const logs = shown.flatMap(line => line.values).filter(value => value > least).map(log)
  const [low, high] = [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs))]
  const [left, right, top, bottom] = [52, 235, 12, 150]
  const x = length => left + ((Math.log2(Number(length)) - 7) / 15) * (right - left)
  const y = value => bottom - ((log(value) - low) / Math.max(1, high - low)) * (bottom - top)
  const parts = []
  for (let power = low; power <= high; power += Math.max(1, Math.ceil((high - low) / 4))) {
    parts.push(svg("line", { x1: left, x2: right, y1: y(base ** power), y2: y(base ** power), class: "mh-rule" }))
    parts.push(svg("text", { x: left - 4, y: y(base ** power) + 3, "text-anchor": "end" }, unit(base ** power)))
  }
  for (const power of [7, 10, 13, 16, 19, 22]) {
    const name = power < 10 ? String(2 ** power) : power < 20 ? `${2 ** (power - 10)} Ki` : `${2 ** (power - 20)} Mi`
    parts.push(svg("text", { x: x(2 ** power), y: bottom + 14, "text-anchor": "middle" }, name))
  }
  parts.push(svg("text", { x: (left + right) / 2, y: bottom + 27, "text-anchor": "middle" }, words.axis))
  if (tokens >= LENGTHS[0] && tokens <= LENGTHS.at(-1)) {
    parts.push(svg("line", { x1: x(tokens), x2: x(tokens), y1: top, y2: bottom, class: "mh-here" }))
  }
  const ends = shown.map(line => ({ line, at: y(line.values.at(-1)) })).sort((a, b) => a.at - b.at)
  ends.forEach((end, i) => { if (i && end.at < ends[i - 1].at + 11) end.at = ends[i - 1].at + 11 })
  for (const { line, at } of ends) {
    const points = line.values.map((value, i) => (value > 0 && log(value) >= low ? `${x(LENGTHS[i]).toFixed(1)},${y(value).toFixed(1)}` : "")).join(" ")
    parts.push(svg("polyline", { points, class: line.style }))
    parts.push(svg("text", { x: right + 5, y: at + 3, class: line.style }, line.name))
  }
  return element("figure", [
    svg("svg", { viewBox: "0 0 320 180", role: "img", "aria-label": title }, parts), element("figcaption", title)])
}

function show(place) {
  const form = place.querySelector("form")
  const [error, noted, more, said] = ["error", "notes", "more", "said"].map(name => place.querySelector(`.mh-calc-${name}`))
  const fold = (title, content) => element("details", [element("summary", title), content])
  const sizesFold = fold(words.sizes, element("div"))
  const machineFold = fold(words.machine, element("div", "", { className: "mh-fields" }))
  const all = element("div", "", { className: "mh-widget-result" })
  const detailsFold = fold(words.details, all)
  const code = element("code")
  const link = element("button", words.copy_link, { type: "button", className: "md-button" })
  const lines = element("button", words.copy_python, { type: "button", className: "md-button" })
  const card = element("button", words.card, { type: "button", className: "md-button" })
  const pythonFold = fold(words.python, element("pre", code))
  const reset = form.querySelector("[type=reset]")
  reset.hidden = false
  form.querySelector("fieldset").disabled = false
  more.replaceChildren(element("p", [card, link, lines, reset], { className: "mh-calc-copy" }), sizesFold, machineFold, detailsFold, pythonFold)
  const field = (name, value) =>
    element("label", [labelOf(name), element("input", "", { name, value, autocomplete: "off" }, { inputmode: "text" })])

  const fieldsets = texts => {
    const model = modelOf(texts.model)
    const names = Object.keys(fieldsOf(model))
    const group = (legend, names) => element("fieldset", [element("legend", legend), element("div", names.map(name => field(name, texts[name])), { className: "mh-fields" })])
    const tied = element("select", ["true", "false", ""].map(value =>
      element("option", words.tied_as[value || "unknown"], { value, selected: value === texts.tied })), { name: "tied" })
    sizesFold.lastChild.replaceChildren(
      ...model.kinds.map((kind, i) => group(words.sees[kind.sees] + (kind.shared ? words.sees.shared : ""), names.filter(name => name.endsWith(`.${i}`)))),
      group("MLP", names.filter(name => name.startsWith("mlp."))),
      group(words.form.model, WHOLE),
      element("label", [words.fields.tied, tied]))
    machineFold.lastChild.replaceChildren(...Object.keys(SCALES).map(name => field(name, texts[name])))
  }
  const defaults = texts => ({ ...DEFAULTS, ...fieldsOf(modelOf(texts.model)), ...fieldsOfDevice(deviceOf(texts.device)), model: texts.model, device: texts.device })
  const typed = () => Object.fromEntries([...form.elements].filter(of => of.name).map(of => [of.name, of.value]))
  const fill = texts => {
    fieldsets(texts)
    for (const of of form.elements) if (of.name in texts) of.value = texts[of.name]
  }

  let [shownCost, timer, drawer] = [null, 0, 0]
  const announce = text => {
    clearTimeout(timer)
    timer = setTimeout(() => { said.textContent = text }, 600)
  }
  const draw = () => {
    if (!detailsFold.open || shownCost === null) return
    all.replaceChildren(...charts(...shownCost), table(...shownCost))
  }
  const refuse = (why, texts) => {
    const { name, parts } = why
    const size = parts.size === undefined ? {} : { size: grouped(parts.size), other: labelOf(parts.other) }
    error.textContent = filled(words.errors[why.why], { ...parts, ...size, label: labelOf(name) })
    error.hidden = false
    const wrong = form.elements[name]
    wrong.setAttribute("aria-invalid", "true")
    wrong.setAttribute("aria-describedby", error.id)
    announce(error.textContent)
  }
  const update = () => {
    const texts = typed()
    for (const of of form.elements) for (const name of ["aria-invalid", "aria-describedby"]) of.removeAttribute(name)
    error.hidden = true
    const model = modelOf(texts.model)
    place.toggleAttribute("data-uncounted", model.kind === "encoder-decoder")
    if (model.kind === "encoder-decoder") {
      const none = [NONE, ""]
      write({ cache: none, memory: none, prompt: none, rate: none }, words.two)
      shownCost = null
      all.replaceChildren()
      code.textContent = ""
      keep(texts)
      announce(words.two)
      return
    }
    const needed = Object.keys(defaults(texts)).filter(name => defaults(texts)[name] !== "" && texts[name]?.trim() === "")
    const optional = name => /^(window|kv_lora_rank|q_lora_rank|qk_rope|v_head|index|top_keys|mlp|vocabulary|learned)/.test(name)
    if (needed.some(name => !optional(name))) return  // being typed: what stands there still holds
    try {
      const sizes = read(texts)
      const cost = count(sizes)
      shownCost = [sizes, cost]
      const found = answers(sizes, cost, texts)
      write(found, notes(sizes, cost, model))
      for (const name of ["tokens", "batch"]) {
        const plain = grouped(sizes[name]).replace(/,/g, "") === texts[name].trim().replace(/,/g, "")
        form.elements[name].previousSibling.textContent = words.form[name] + (plain ? "" : ` = ${grouped(sizes[name])}`)
      }
      code.textContent = cost.weight_bytes === undefined ? "" : python(sizes, deviceOf(texts.device))
      announce(filled(words.says, { cache: found.cache[0], verdict: found.memory[1] || found.memory[0], prompt: found.prompt[0], rate: found.rate[0] }))
      clearTimeout(drawer)
      drawer = setTimeout(draw, 60)
    } catch (why) {
      if (!(why instanceof Refused)) throw why
      refuse(why, texts)
      return
    }
    keep(texts)
  }
  const write = (found, note) => {
    for (const [name, [first, second]] of Object.entries(found)) {
      place.querySelector(`[data-answer=${name}]`).textContent = first
      place.querySelector(`[data-answer=${name}-more]`).textContent = second
    }
    noted.textContent = note
    noted.hidden = !note
  }
  const keep = texts => {
    const plain = defaults(texts)
    const changed = Object.entries(texts).filter(([name, text]) => text.trim() !== plain[name] || (DEFAULTS[name] ?? text) !== text)
    const state = new URLSearchParams(changed.map(([name, text]) => [name, text.trim()]))
    const search = state.size ? `?${state}` : ""
    history.replaceState(history.state, "", location.pathname + search + location.hash)
    for (const other of document.querySelectorAll("a.mh-language")) {
      other.href = other.href.replace(/[?#].*$/, "") + search
    }
  }
  const start = state => {
    const model = modelOf(state.get("model")) ? state.get("model") : DEFAULTS.model
    const device = deviceOf(state.get("device")) ? state.get("device") : DEFAULTS.device
    const plain = defaults({ model, device })
    const given = [...state].filter(([name, text]) => name in plain && (form.elements[name]?.tagName !== "SELECT" || hasOption(name, text)))
    fill({ ...plain, ...Object.fromEntries(given), model, device })
    sizesFold.open = given.some(([name]) => name in fieldsOf(modelOf(model)))
    machineFold.open = given.some(([name]) => name in SCALES)
    update()
  }
  const hasOption = (name, text) => [...form.elements[name].options].some(option => option.value === text)
  const chosen = event => {
    if (event.target.name === "model" || event.target.name === "device") {
      const texts = typed()
      const plain = defaults(texts)
      const kept = Object.keys(DEFAULTS).map(name => [name, texts[name]])
      const device = event.target.name === "model" ? Object.keys(SCALES).map(name => [name, texts[name]]) : []
      const sizes = event.target.name === "device" ? Object.keys(fieldsOf(modelOf(texts.model))).map(name => [name, texts[name]]) : []
      fill({ ...plain, ...Object.fromEntries([...kept, ...device, ...sizes]) })
    }
    update()
  }
  form.addEventListener("input", chosen)
  // A field takes one line: what was pasted in two must not become one number.
  form.addEventListener("paste", event => {
    const text = event.clipboardData?.getData("text") ?? ""
    if (event.target.tagName !== "INPUT" || !/[\r\n\t]/.test(text.trim())) return
    event.preventDefault()
    event.target.setRangeText(text.trim().replace(/\s+/g, " "), event.target.selectionStart, event.target.selectionEnd, "end")
    update()
  })
  form.addEventListener("reset", event => { event.preventDefault(); start(new URLSearchParams()) })
  form.addEventListener("submit", event => event.preventDefault())
  detailsFold.addEventListener("toggle", draw)
  card.addEventListener("click", () => {
    machineFold.open = true
    form.elements.memory.focus()
    form.elements.memory.select()
  })
  const copy = (button, label, text) => button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text())
    button.textContent = words.copied
    announce(words.copied)
    setTimeout(() => { button.textContent = label }, 1500)
  })
  copy(link, words.copy_link, () => location.href)
  copy(lines, words.copy_python, () => code.textContent)
  start(new URLSearchParams(location.search))
}

mount("calculator", show)
