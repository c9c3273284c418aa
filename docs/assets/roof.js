// One attention on the roof of a device: what limits it, from the rule of the page. A test compares bound() with the package.

import { asked, element, filled, keep, mount, svg, teller } from "./dom.js"
import { DEVICES } from "./known-sizes.js"

const words = wordsOf("roof")
const HEADS = 128
const WIDTH = 128  // numbers of a head; of MLA's row, 576 are the key and 512 of them the value
// How many key-value heads a kind is like. Of MLA's latents each number is read once, as key and as value.
const KINDS = { MHA: 128, "GQA-8": 8, MQA: 1, MLA: 576 / 1088 }

/** FLOPs, FLOPs a byte, the least time in seconds and the share of the peak, of L new queries that see S tokens. */
export function bound(kind, queries, tokens, { flops: peak, bandwidth }) {
  const flops = 2 * queries * tokens * HEADS * (kind === "MLA" ? 1088 : 2 * WIDTH)
  const intensity = 1 / (1 / tokens + KINDS[kind] / (HEADS * queries))
  const seconds = Math.max(flops / peak, flops / intensity / bandwidth)
  return { flops, intensity, seconds, share: flops / seconds / peak }
}

const round = x => Number(x.toPrecision(x < 100 ? 2 : 3)).toLocaleString("en")
const time = s => (s < 1e-3 ? `${round(s * 1e6)} µs` : s < 1 ? `${round(s * 1e3)} ms` : `${round(s)} s`)
const X = [-1, 4.5], Y = [11, 16], SIZE = [320, 186]  // powers of ten; room in the picture
const at = (x, y) => [
  32 + (SIZE[0] - 40) * (Math.log10(x) - X[0]) / (X[1] - X[0]),
  SIZE[1] - 30 - (SIZE[1] - 42) * (Math.log10(y) - Y[0]) / (Y[1] - Y[0]),
]

mount("roof", place => {
  const query = asked()
  const select = (name, options, value) => element("select", options.map(([key, shown]) => new Option(shown, key, false, key === value)), { name })
  const kind = select("kind", Object.keys(KINDS).map(name => [name, name]), query.get("kind") ?? "MHA")
  const device = select("device", DEVICES.map(({ name, title }) => [name, title]), query.get("device") ?? "h100")
  const slider = (name, max, value) => element("input", "", { type: "range", name, min: 0, max, step: 1, value: query.get(name) ?? value })
  const queries = slider("queries", 12, 0)
  const tokens = slider("tokens", 20, 12)
  const label = (text, field, shown) => element("label", [text, " ", ...(shown ? [shown] : []), field])
  const counts = [element("b"), element("b")]
  const form = element("form", [
    label(words.device, device), label(words.kind, kind),
    label(words.queries, queries, counts[0]), label(words.tokens, tokens, counts[1]),
  ])
  const line = svg("polyline", { class: "mh-roof" })
  const dot = svg("circle", { r: 5, class: "mh-roof-dot" })
  const drop = svg("line", { class: "mh-roof-drop" })
  const text = (x, y, said, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor }, said)
  const picture = svg("svg", { viewBox: `0 0 ${SIZE.join(" ")}`, class: "mh-roofline", "aria-hidden": "true" },
    ...[1, 10, 100, 1000, 10000].map(x => text(at(x, 1e11)[0], SIZE[1] - 16, x.toLocaleString("en"))),
    ...[1, 100].map(y => text(28, at(1, y * 1e12)[1] + 3, String(y), "end")),
    text(SIZE[0] / 2, SIZE[1] - 4, words.x), text(34, 11, words.y, "start"), line, drop, dot)
  const result = element("p", "", { className: "mh-widget-result" })
  const { place: told, tell } = teller()

  function update() {
    const chip = DEVICES.find(({ name }) => name === device.value) ?? DEVICES[0]
    const [L, S] = [2 ** queries.value, 2 ** tokens.value]
    if (L > S) tokens.value = queries.value
    const seen = Math.max(L, S)
    const { intensity, seconds, share } = bound(kind.value, L, seen, chip)
    const ridge = chip.flops / chip.bandwidth
    counts[0].textContent = L.toLocaleString("en")
    counts[1].textContent = seen.toLocaleString("en")
    queries.ariaValueText = counts[0].textContent
    tokens.ariaValueText = counts[1].textContent
    const least = 10 ** X[0]
    line.setAttribute("points", [at(least, least * chip.bandwidth), at(ridge, chip.flops), at(10 ** X[1], chip.flops)].join(" "))
    const [x, y] = at(intensity, Math.min(chip.flops, intensity * chip.bandwidth))
    for (const [name, value] of Object.entries({ cx: x, cy: y })) dot.setAttribute(name, value)
    for (const [name, value] of Object.entries({ x1: x, y1: y, x2: x, y2: SIZE[1] - 28 })) drop.setAttribute(name, value)
    const parts = { intensity: round(intensity), ridge: round(ridge), time: time(seconds), share: round(100 * share) }
    const said = filled(intensity < ridge ? words.memory : words.arithmetic, parts)
    result.textContent = said
    tell(said)
  }
  const remember = () => keep({
    kind: kind.value === "MHA" ? null : kind.value, device: device.value === "h100" ? null : device.value,
    queries: queries.value === "0" ? null : queries.value, tokens: tokens.value === "12" ? null : tokens.value,
  })
  form.addEventListener("input", update)
  form.addEventListener("change", remember)
  form.addEventListener("submit", event => event.preventDefault())
  place.replaceChildren(form, picture, result, told)
  update()
})
