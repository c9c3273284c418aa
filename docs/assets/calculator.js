// What attention costs, for sizes that the reader sets. All counting is in costs.js, which the build
// translates from mhattn/costs/model_costs.py.

import { MODELS, kept_bytes, model_cost } from "./costs.js"
import { element, mount, wordsOf } from "./dom.js"

const WORDS = {
  en: {
    model: "known model", own: "sizes of my own", reset: "reset", refused: "Python refuses: ", inPython: "The same in Python:",
    groups: { model: "Model", run: "Sequences and machine", more: "Latent attention, windows, shared caches" },
    fields: {
      layers: "layers", embed_dim: "width", num_heads: "query heads", num_kv_heads: "KV heads", head_dim: "head size",
      mlp_dim: "MLP width", mlp_matrices: "matrices in the MLP", tokens: "tokens (length)", batch: "sequences (batch)",
      bytes_per_number: "bytes a number", gigabytes_per_second: "memory, GB/s", window: "window",
      global_layers: "layers without window", layers_per_cache: "layers per cache", q_lora_rank: "latent of queries",
      kv_lora_rank: "latent that is cached", qk_rope_head_dim: "rotary part", v_head_dim: "value size",
    },
    result: {
      once: "Weights", attention_parameters: "parameters, attention", mlp_parameters: "parameters, MLPs", weight_bytes: "their bytes",
      forward: "All tokens at once (prefill, training)", projection_flops: "FLOPs, projections", score_flops: "FLOPs, scores and mixing", mlp_flops: "FLOPs, MLPs",
      forward_flops: "forward pass", causal_forward_flops: "forward, skipping what the mask hides", training_flops: "forward and backward",
      balance_tokens: "scores and mixing outweigh the rest from (tokens)", kept_bytes: "attention keeps for backward", kept_with_weights_bytes: "with the weights stored",
      decode: "One more token (decode)", decode_flops: "FLOPs", cache_bytes_per_token: "cache a token, one sequence", cache_bytes: "KV cache", decode_nanoseconds: "read weights and cache once",
      shapes: "Shapes in one layer", queries: "queries", keys: "keys", values: "values", latent: "cached latent", weights: "attention weights",
    },
    share: percent => `${percent} % of the forward pass`,
    chart: "FLOPs per token against length", lines: { projection: "projections", scores: "scores, mixing", mlp: "MLPs" }, here: "here",
    bytes: "memory in decoding against length", cache: "KV cache", held: "weights", axis: "tokens",
  },
  zh: {
    model: "已知模型", own: "自定义尺寸", reset: "还原", refused: "这样不行，Python 会报错：", inPython: "用 Python 写：",
    groups: { model: "模型", run: "序列与机器", more: "潜在注意力、窗口、共享缓存" },
    fields: {
      layers: "层数", embed_dim: "模型宽度", num_heads: "查询头数", num_kv_heads: "KV 头数", head_dim: "头维度",
      mlp_dim: "MLP 宽度", mlp_matrices: "MLP 中的矩阵数", tokens: "词元数（长度）", batch: "序列数（批量）",
      bytes_per_number: "每个数的字节数", gigabytes_per_second: "显存带宽，GB/s", window: "窗口",
      global_layers: "没有窗口的层数", layers_per_cache: "几层共用一份缓存", q_lora_rank: "查询的潜在维度",
      kv_lora_rank: "缓存的潜在维度", qk_rope_head_dim: "旋转部分的维度", v_head_dim: "值的维度",
    },
    result: {
      once: "参数", attention_parameters: "注意力的参数量", mlp_parameters: "MLP 的参数量", weight_bytes: "占用的字节",
      forward: "一次处理全部词元（预填充、训练）", projection_flops: "投影的 FLOPs", score_flops: "分数与加权求和的 FLOPs", mlp_flops: "MLP 的 FLOPs",
      forward_flops: "前向", causal_forward_flops: "前向，跳过掩码遮住的部分", training_flops: "前向加反向",
      balance_tokens: "从多长开始，分数与加权求和超过其余部分（词元）", kept_bytes: "注意力为反向保存", kept_with_weights_bytes: "若还保存注意力权重",
      decode: "再生成一个词元（解码）", decode_flops: "FLOPs", cache_bytes_per_token: "每个词元的缓存（一个序列）", cache_bytes: "KV 缓存", decode_nanoseconds: "读一遍参数和缓存",
      shapes: "一层中的形状", queries: "查询", keys: "键", values: "值", latent: "缓存的潜在向量", weights: "注意力权重",
    },
    share: percent => `占前向的 ${percent} %`,
    chart: "每个词元的 FLOPs 随长度的变化", lines: { projection: "投影", scores: "分数与加权", mlp: "MLP" }, here: "当前",
    bytes: "解码占用的显存随长度的变化", cache: "KV 缓存", held: "参数", axis: "词元",
  },
}

// Arguments of model_cost; an empty field leaves Python's default, which is null here.
const GROUPS = {
  model: { layers: 32, embed_dim: 4096, num_heads: 32, num_kv_heads: 8, head_dim: 128, mlp_dim: 16384, mlp_matrices: 2 },
  run: { tokens: 8192, batch: 1, bytes_per_number: 2, gigabytes_per_second: 1000 },
  more: {
    kv_lora_rank: null, q_lora_rank: null, qk_rope_head_dim: null, v_head_dim: null,
    window: null, global_layers: null, layers_per_cache: null,
  },
}
const START = Object.assign({}, ...Object.values(GROUPS))
const OF_MODEL = Object.keys({ ...GROUPS.model, ...GROUPS.more })
const COUNTED = {
  once: ["attention_parameters", "mlp_parameters", "weight_bytes"],
  forward: ["projection_flops", "score_flops", "mlp_flops", "forward_flops", "causal_forward_flops", "training_flops",
    "balance_tokens", "kept_bytes", "kept_with_weights_bytes"],
  decode: ["decode_flops", "cache_bytes_per_token", "cache_bytes", "decode_nanoseconds"],
}

/** The arguments that fields' texts stand for: whole numbers as BigInts; what is empty is left out. */
export function read(texts) {
  const given = Object.entries(texts).filter(([, text]) => text.trim() !== "")
  return Object.fromEntries(given.map(([name, text]) => [name, /^\s*-?\d+\s*$/.test(text) ? BigInt(text) : Number(text)]))
}

/** What the fields hold for a known model; its table has no MLP, so a plain one of four widths is assumed. */
export function sizesOf(model) {
  const blank = Object.fromEntries(OF_MODEL.map(name => [name, null]))
  const { name: _, title: __, family: ___, ...sizes } = model
  return { ...blank, ...sizes, mlp_dim: 4 * model.embed_dim, mlp_matrices: 2 }
}

const grouped = number => String(number).replace(/\B(?=(\d{3})+$)/g, ",")

const scaled = (number, base, units) => {
  let [rest, unit] = [Number(number), 0]
  while (rest >= 0.9995 * base && unit < units.length - 1) [rest, unit] = [rest / base, unit + 1]
  const text = unit ? rest.toPrecision(rest >= 999.5 ? 4 : 3) : String(rest)
  return `${text} ${units[unit]}`.trim()
}

/** A count in three digits, in the unit that its name says. */
export function short(name, number) {
  if (name === "balance_tokens") return grouped(number)
  if (name === "decode_nanoseconds") return scaled(number, 1000, ["ns", "µs", "ms", "s"])
  if (name.includes("bytes")) return scaled(number, 1024, ["bytes", "KiB", "MiB", "GiB", "TiB"])
  return scaled(number, 1000, ["", "K", "M", "G", "T", "P", "E"])
}

/** All counts; what latent attention keeps for the backward pass is not among them. */
export function count(sizes) {
  const cost = model_cost(sizes)
  const { kv_lora_rank, qk_rope_head_dim, embed_dim, num_heads, num_kv_heads, head_dim, v_head_dim = head_dim } = sizes
  if (kv_lora_rank !== undefined || qk_rope_head_dim || v_head_dim !== head_dim) return cost
  const kept = stored => kept_bytes(embed_dim, num_heads, num_kv_heads, head_dim, { ...sizes, with_weights: stored })
  return { ...cost, kept_bytes: kept(false), kept_with_weights_bytes: kept(true) }
}

function results(words, sizes) {
  const cost = count(sizes)
  const groups = Object.entries(COUNTED).map(([group, names]) =>
    counts(words.result[group], names.filter(name => name in cost).map(name => row(words, name, cost))))
  return element("div", [...groups, counts(words.result.shapes, shapes(words, sizes))], { className: "mh-counts" })
}

const counts = (title, rows) =>
  element("table", [element("caption", title), element("tbody", rows)], { className: "mh-table" })

function row(words, name, cost) {
  const compact = short(name, cost[name])
  const exact = name === "balance_tokens" || compact === String(cost[name]) ? "" : grouped(cost[name])
  const share = name === "score_flops"
    ? element("small", words.share((100 * Number(cost.score_flops) / Number(cost.forward_flops)).toPrecision(3))) : ""
  const value = [element("b", compact), element("small", exact), share]
  return element("tr", [element("td", words.result[name]), element("td", value)], {}, { "data-name": name })
}

function shapes(words, { tokens, batch = 1n, num_heads, num_kv_heads, head_dim, kv_lora_rank, qk_rope_head_dim = 0n, v_head_dim = head_dim }) {
  const of = (name, ...shape) => element("tr", [element("td", words.result[name]), element("td", `(${shape.join(", ")})`)])
  const cached = kv_lora_rank === undefined
    ? [of("keys", batch, num_kv_heads, tokens, head_dim + qk_rope_head_dim), of("values", batch, num_kv_heads, tokens, v_head_dim)]
    : [of("latent", batch, 1, tokens, kv_lora_rank + qk_rope_head_dim)]
  return [of("queries", batch, num_heads, tokens, head_dim + qk_rope_head_dim), ...cached, of("weights", batch, num_heads, tokens, tokens)]
}

/** A line of Python that counts the same. */
export function python(sizes) {
  const given = Object.entries(sizes).map(([name, size]) => `${name}=${size}`)
  return `model_cost(${given.join(", ")})`
}

const LENGTHS = Array.from({ length: 31 }, (_, i) => BigInt(Math.round(2 ** (7 + i / 2))))

function charts(words, sizes) {
  const costs = LENGTHS.map(tokens => model_cost({ ...sizes, tokens }))
  const each = name => costs.map((cost, i) => Number(cost[name]) / Number(LENGTHS[i] * (sizes.batch ?? 1n)))
  return [
    chart(words, words.chart, sizes.tokens, short.bind(null, "flops"), 10, [
      { name: words.lines.projection, style: "mh-line-1", values: each("projection_flops") },
      { name: words.lines.scores, style: "mh-line-2", values: each("score_flops") },
      { name: words.lines.mlp, style: "mh-line-3", values: each("mlp_flops") },
    ]),
    chart(words, words.bytes, sizes.tokens, short.bind(null, "bytes"), 1024, [
      { name: words.held, style: "mh-line-1", values: costs.map(cost => Number(cost.weight_bytes)) },
      { name: words.cache, style: "mh-line-2", values: costs.map(cost => Number(cost.cache_bytes)) },
    ]),
  ]
}

const svg = (tag, data, content = []) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(data)) made.setAttribute(name, value)
  made.append(...[content].flat())
  return made
}

/** Lines over lengths, both axes logarithmic; each line is named at its end. */
function chart(words, title, tokens, unit, base, lines) {
  const log = value => Math.log(value) / Math.log(base)
  const shown = lines.filter(line => line.values.some(value => value > 0))
  const logs = shown.flatMap(line => line.values).filter(value => value > 0).map(log)
  const [low, high] = [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs))]
  const [left, right, top, bottom] = [52, 235, 12, 150]
  const x = length => left + ((Math.log2(Number(length)) - 7) / 15) * (right - left)
  const y = value => bottom - ((log(value) - low) / Math.max(1, high - low)) * (bottom - top)
  const parts = []
  for (let power = low; power <= high; power += Math.max(1, Math.ceil((high - low) / 4))) {
    parts.push(svg("line", { x1: left, x2: right, y1: y(base ** power), y2: y(base ** power), class: "mh-rule" }))
    parts.push(svg("text", { x: left - 4, y: y(base ** power) + 3, "text-anchor": "end" }, unit(base ** power)))
  }
  for (const power of [7, 10, 13, 17, 20]) {
    const name = power < 10 ? String(2 ** power) : power < 20 ? `${2 ** (power - 10)} Ki` : "1 Mi"
    parts.push(svg("text", { x: x(2 ** power), y: bottom + 12, "text-anchor": "middle" }, name))
  }
  parts.push(svg("text", { x: (left + right) / 2, y: bottom + 25, "text-anchor": "middle" }, words.axis))
  if (tokens >= LENGTHS[0] && tokens <= LENGTHS.at(-1)) {
    parts.push(svg("line", { x1: x(tokens), x2: x(tokens), y1: top, y2: bottom, class: "mh-here" }))
  }
  const ends = shown.map(line => ({ line, at: y(line.values.at(-1)) })).sort((a, b) => a.at - b.at)
  ends.forEach((end, i) => { if (i && end.at < ends[i - 1].at + 11) end.at = ends[i - 1].at + 11 })
  for (const { line, at } of ends) {
    const points = line.values.map((value, i) => (value > 0 ? `${x(LENGTHS[i]).toFixed(1)},${y(value).toFixed(1)}` : "")).join(" ")
    parts.push(svg("polyline", { points, class: line.style }))
    parts.push(svg("text", { x: right + 5, y: at + 3, class: line.style }, line.name))
  }
  return element("figure", [
    svg("svg", { viewBox: "0 0 320 180", role: "img", "aria-label": title }, parts), element("figcaption", title)])
}

function show(place) {
  const words = wordsOf(WORDS)
  const families = [...new Set(MODELS.map(model => model.family))]
  const choice = element("select", [
    element("option", words.own, { value: "" }),
    ...families.map(family => element("optgroup", MODELS.filter(model => model.family === family)
      .map(model => element("option", model.title, { value: model.name })), { label: family })),
  ], { name: "model" })
  const fields = {}
  const sets = Object.entries(GROUPS).map(([group, sizes]) => {
    const labels = Object.keys(sizes).map(name => {
      fields[name] = element("input", "", { name, inputMode: "numeric", autocomplete: "off" })
      return element("label", [words.fields[name], fields[name]], { title: name })
    })
    const grid = element("div", labels, { className: "mh-fields" })
    return group === "more"
      ? element("details", [element("summary", words.groups[group]), grid])
      : element("fieldset", [element("legend", words.groups[group]), grid])
  })
  const reset = element("button", words.reset, { type: "reset", className: "md-button" })
  const form = element("form", [element("label", [words.model, choice]), ...sets, reset], { className: "mh-calculator" })
  const result = element("div", "", { className: "mh-widget-result" }, { "aria-live": "polite" })

  const fill = sizes => {
    for (const [name, size] of Object.entries(sizes)) fields[name].value = size ?? ""
  }
  const chosen = () => {
    const model = MODELS.find(model => model.name === choice.value)
    return model ? { ...START, ...sizesOf(model) } : START
  }
  const update = () => {
    const texts = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]))
    const sizes = read(texts)
    try {
      result.replaceChildren(results(words, sizes), ...charts(words, sizes),
        element("p", [words.inPython, " ", element("code", python(sizes))]))
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      result.replaceChildren(element("p", [words.refused, element("code", error.message)], { role: "alert" }))
    }
    keep(texts)
  }
  const keep = texts => {
    const changed = Object.entries(chosen()).filter(([name, size]) => texts[name].trim() !== String(size ?? ""))
    const state = new URLSearchParams(changed.map(([name]) => [name, texts[name].trim()]))
    if (choice.value) state.set("model", choice.value)
    history.replaceState(history.state, "", location.pathname + (state.size ? `?${state}` : "") + location.hash)
  }
  const start = state => {
    choice.value = MODELS.some(model => model.name === state.get("model")) ? state.get("model") : ""
    fill(chosen())
    for (const [name, text] of state) if (fields[name]) fields[name].value = text
    sets.at(-1).open = Object.keys(GROUPS.more).some(name => fields[name].value !== "")
    update()
  }
  choice.addEventListener("input", event => {
    event.stopPropagation()
    const run = Object.fromEntries(Object.keys(GROUPS.run).map(name => [name, fields[name].value]))
    fill({ ...chosen(), ...run })
    sets.at(-1).open = Object.keys(GROUPS.more).some(name => fields[name].value !== "")
    update()
  })
  form.addEventListener("input", update)
  form.addEventListener("reset", event => { event.preventDefault(); start(new URLSearchParams()) })
  form.addEventListener("submit", event => event.preventDefault())
  place.replaceChildren(form, result)
  start(new URLSearchParams(location.search))
}

mount("calculator", show)
