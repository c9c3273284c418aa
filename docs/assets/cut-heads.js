// SmolLM2 on the reader's sentence: all maps, what comes next, and the knife. The model is in a worker (smollm-worker.js); here
// is what is asked of it and how it is shown.

import { asked, element, filled, keep, mount, punctuation, teller, two } from "./dom.js"
import { largeMap, nameOf, smallMaps } from "./head-maps.js"
import { PATTERNS, placesOf, redrawn, shares } from "./head-statistics.js"
import { files } from "./smollm-files.js"

const words = wordsOf("cut-heads")
const here = new URL(".", import.meta.url)
const ABOUT = new URL("../data/cut-heads/about.json", import.meta.url)
const SHOWN = 6  // next tokens that have a bar
const LOT = 5  // heads of a preset
const MB = 1e6
const MEMORY = 700  // MB that the page may take: a test measures them
const signed = x => (Math.abs(x) < 0.005 ? "±" : x > 0 ? "+" : "−") + two(Math.abs(x))
const percent = x => `${(100 * x).toFixed(1)} %`

/** The worker, as functions whose answers come later. */
class Engine {
  number = 0
  waiting = new Map()

  constructor(tell) {
    this.worker = new Worker(new URL("smollm-worker.js", here), { type: "module" })
    this.worker.addEventListener("error", ({ message }) => this.end(new Error(message)))
    this.worker.addEventListener("message", ({ data: { number, answer, failed, arrived } }) => {
      if (arrived) return tell(arrived)
      const { done, fail } = this.waiting.get(number) ?? {}
      this.waiting.delete(number)
      failed ? fail?.(new Error(failed)) : done?.(answer)
    })
  }

  ask(name, given = {}) {
    const number = ++this.number
    this.worker.postMessage({ number, name, given })
    return new Promise((done, fail) => this.waiting.set(number, { done, fail }))
  }

  end(error) {
    this.worker.terminate()
    for (const { fail } of this.waiting.values()) fail(error)
    this.waiting.clear()
  }
}

const button = (text, press, type = "button") => {
  const made = element("button", text, { type, className: "md-button" })
  if (press) made.addEventListener("click", press)
  return made
}

async function show(place) {
  if (location.protocol === "file:") return place.replaceChildren(element("p", words.offline))
  const about = await fetch(ABOUT).then(answer => (answer.ok ? answer.json() : null)).catch(() => null)
  if (!files || !about) return place.replaceChildren(element("p", words.missing, {}, { role: "alert" }))
  offer(place, about)
}

/** Before anything is loaded: what it takes, the key, and the figure that stands there without a script. */
function offer(place, about, said = "", still = place.querySelector("noscript")?.textContent ?? "") {
  const bar = element("progress", "", { max: 1, value: 0, hidden: true }, { "aria-label": words.loading })
  const line = element("p", said || filled(words.offer, { size: Math.round(files.bytes / MB) }), {}, { role: "status" })
  let engine = null
  const stop = button(words.stop, () => { engine?.end(new Error("stopped")) })
  stop.hidden = true
  const go = button(filled(words.load, { size: Math.round(files.bytes / MB) }), async () => {
    ;[go.hidden, stop.hidden, bar.hidden] = [true, false, false]
    engine = new Engine(arrived => {
      bar.value = arrived / files.bytes
      line.textContent = arrived < files.bytes ? filled(words.arrived, { now: Math.round(arrived / MB), all: Math.round(files.bytes / MB) }) : words.starting
    })
    try {
      const parts = files.parts.map(({ name, hash }) => ({ hash, url: new URL(name, here).href }))
      const model = await engine.ask("load", { parts, product: new URL(files.product, here).href, bytes: files.bytes })
      use(place, about, engine, model)
    } catch (error) {
      engine.end(error)
      offer(place, about, error.message === "stopped" ? words.stopped : filled(words.failed, { why: error.message }), still)
    }
  })
  const small = element("p", [filled(words.phone, { memory: MEMORY }), element("a", words.small, { href: new URL("../live-model/", here).href })], { className: "mh-limit" })
  place.replaceChildren(line, bar, element("div", [go, stop], { className: "mh-buttons" }), small)
  place.insertAdjacentHTML("beforeend", still)
}

function use(place, { sentences, roles }, engine, model) {
  const { layers, heads } = model
  const count = layers * heads
  const key = ({ layer, head, mlp }) => (mlp ? `${layer + 1}.mlp` : `${layer + 1}.${head + 1}`)
  const numberOf = ({ layer, head }) => layer * heads + head
  const headAt = number => ({ layer: Math.floor(number / heads), head: number % heads })
  let cut = []  // what is cut, in the order of the cuts
  let before = []  // earlier lists, for undo
  let run = null  // the text with all heads
  let now = null  // the same with the cuts
  let [order, numbers, highest, alone] = [[], null, undefined, null]
  const state = { head: 0, word: 0, key: 0 }
  let busy = 0  // the number of the latest question; answers to earlier ones are let go

  // Fields
  const named = Object.entries(sentences)
  const choice = element("select", [["", words.own], ...named.map(([name, { title }]) => [name, title])].map(([value, text]) => element("option", text, { value })), { name: "sentence" })
  const text = element("textarea", "", { name: "text", rows: 2, value: named[0][1].text, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const second = element("textarea", "", { name: "second", rows: 2, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const start = element("input", "", { type: "checkbox", name: "start" })
  const as = element("select", ["zero", "mean", "other"].map(value => element("option", words.as[value], { value })), { name: "as" })
  const sort = element("select", ["layers", "pair", ...Object.keys(PATTERNS), "direct", "alone"].map(value => element("option", words.sorts[value], { value })), { name: "sort" })
  const counts = element("p", "", { className: "mh-limit" })
  const form = element("form", [
    element("label", [words.sentence, choice], { className: "mh-wide" }),
    element("label", [words.text, text], { className: "mh-wide" }),
    element("details", [element("summary", words.more),
      element("label", [words.second, second]), counts, element("label", [start, " ", words.start])], { className: "mh-wide" }),
  ])

  // What the model says
  const said = element("p", "", { className: "mh-said" }, { role: "status" })
  const { place: told, tell } = teller()
  const tokens = element("div", "", { className: "mh-tokens" }, { role: "group", "aria-label": words.choose })
  const bars = element("table", "", { className: "mh-expected mh-beside" })
  const writeOn = button(words.write, () => write())

  // The knife
  const list = element("ul", "", { className: "mh-cuts" }, { "aria-label": words.cuts })
  const mlp = button("", () => add([{ layer: headAt(state.head).layer, mlp: true }]))
  const wholeLayer = button("", () => add(Array.from({ length: heads }, (_, head) => ({ layer: headAt(state.head).layer, head }))))
  const firstOnes = button(filled(words.first, { count: LOT }), () => add(order.filter(each => !isCut(each)).slice(0, LOT).map(headAt)))
  // The control of every cut: as many heads by lot in the place of those that are cut.
  const headsCut = () => cut.filter(each => each.head !== undefined)
  const lot = button("", () => {
    const many = headsCut().length || LOT
    before.push(cut)
    cut = drawn(many).map(each => ({ ...headAt(each), as: as.value }))
    changed()
  })
  const knife = element("fieldset", [
    element("legend", words.knife),
    element("label", [words.cut_to, " ", as]),
    list,
    element("div", [
      firstOnes,
      ...Object.entries(roles).map(([name, found]) => button(filled(words.roles[name], { count: found.length }), () => add(found.map(([layer, head]) => ({ layer, head }))))),
      lot,
      mlp,
      wholeLayer,
      button(words.undo, () => { if (before.length) { cut = before.pop(); changed() } }),
      button(words.none, () => { if (cut.length) { before.push(cut); cut = []; changed() } }),
    ], { className: "mh-buttons" }),
  ], { className: "mh-knife" })

  // Maps
  const grid = smallMaps({ layers, heads, group: model.group, causal: true }, head => { state.head = head; mark(); render(); remember() },
    head => { state.head = head; isCut(head) ? remove(headAt(head)) : add([headAt(head)]) })
  const map = largeMap((word, key) => { Object.assign(state, { word, key }); resort({ stay: true }) }, () => {})
  const title = element("p", "", { className: "mh-said" })
  const toggle = button("", () => (isCut(state.head) ? remove(headAt(state.head)) : add([headAt(state.head)])))
  const limit = element("p", "", { className: "mh-limit" })
  const oneByOne = button(words.each, () => eachAlone())
  const patching = patchGrid()
  const shownPart = element("div", [
    element("div", [element("div", [bars, element("div", [writeOn], { className: "mh-buttons" })]), knife], { className: "mh-pair" }),
    element("div", [element("label", [words.sort, " ", sort]), oneByOne], { className: "mh-buttons mh-sorting" }), limit,
    element("div", [grid.place, element("div", [title, toggle, map.place], { className: "mh-panel" })], { className: "mh-browse" }), patching.place])
  place.replaceChildren(form, tokens, said, shownPart, told)

  /** The key that the large map marks: of a pair the reader's, else the one that gets most. */
  function mark() {
    const weights = row(state.head, state.word)
    if (sort.value !== "pair" || !(state.key <= state.word)) state.key = weights.indexOf(Math.max(...weights))
  }

  const isCut = number => cut.some(each => each.head !== undefined && numberOf(each) === number)
  const row = (head, i) => {
    const [L, { layer, head: h }] = [run.tokens.length, headAt(head)]
    return Array.from(run.maps[layer].subarray((h * L + i) * L, (h * L + i) * L + i + 1))
  }
  function drawn(many) {
    const left = Array.from({ length: count }, (_, i) => i).filter(each => !isCut(each))
    return Array.from({ length: many }, () => left.splice(Math.floor(Math.random() * left.length), 1)[0])
  }

  function add(more) {
    const kept = cut.filter(each => !more.some(other => key(other) === key(each)))
    before.push(cut)
    cut = [...kept, ...more.map(each => ({ ...each, as: as.value }))]
    changed()
  }

  function remove(which) {
    const at = cut.findIndex(each => key(each) === key(which))
    const held = list.contains(document.activeElement)
    before.push(cut)
    cut = cut.filter((_, i) => i !== at)
    changed().then(() => { if (held) (list.querySelectorAll("button")[Math.min(at, cut.length - 1)] ?? toggle).focus() })
  }

  /** The text anew: all heads, then with the cuts. */
  async function read({ first = false } = {}) {
    const mine = ++busy
    place.setAttribute("aria-busy", true)
    const answer = await engine.ask("run", { text: text.value, start: start.checked, second: second.value })
    if (mine !== busy) return
    place.setAttribute("aria-busy", false)
    shownPart.classList.toggle("mh-old", !answer.tokens)
    shownPart.inert = !answer.tokens
    patching.forget()
    if (!answer.tokens) {
      run = null
      said.textContent = filled(answer.count < 2 ? words.short : words.long, { count: answer.count, most: model.longest })
      return
    }
    run = answer
    alone = null
    state.word = run.tokens.length - 1
    if (run.second !== run.count && as.value === "other") {  // without a second text of this length, cut to zero
      as.value = "zero"
      cut = cut.map(each => ({ ...each, as: "zero" }))
    }
    await changed({ first })
  }

  /** After a cut: the answer, and what it was before. */
  async function changed(how = {}) {
    if (!run) return
    const mine = ++busy
    place.setAttribute("aria-busy", true)
    const answer = cut.length ? await engine.ask("cut", { cut }) : run
    if (mine !== busy) return
    now = answer
    bars.classList.add("mh-old")
    await resort(how)
    place.setAttribute("aria-busy", false)
    remember()
  }

  /** The heads in the order that is asked for; the first one is shown, unless the reader's stays. */
  async function resort({ stay = false, first = false } = {}) {
    const known = PATTERNS[sort.value]
    ;[numbers, highest] = [null, undefined]
    if (known) {
      const places = placesOf(run.numbers, known)
      if (places.length) {
        numbers = shares(places, count, row)
        highest = redrawn(places, count, row)[1]
      }
    } else if (sort.value === "pair") numbers = Float64Array.from({ length: count }, (_, head) => row(head, state.word)[state.key] ?? 0)
    else if (sort.value === "direct") numbers = await engine.ask("direct", { position: state.word, token: run.next[state.word][0][0] })
    else if (sort.value === "alone") numbers = alone
    order = Array.from({ length: count }, (_, i) => i)
    if (numbers) order.sort((one, other) => numbers[other] - numbers[one] || one - other)
    if (numbers && first) state.head = order[0]
    if (!stay) mark()
    render()
  }

  function render() {
    if (!run) return
    const { tokens: read, next } = run
    tokens.replaceChildren(...read.map((token, i) => {
      const made = element("button", token, { type: "button" }, { "aria-pressed": i === state.word })
      made.style.setProperty("--weight", `${100 * (row(state.head, state.word)[i] ?? 0)}%`)
      made.addEventListener("click", () => { state.word = i; resort().then(() => tokens.children[i]?.focus()); remember() })
      return made
    }))
    const mean = losses => losses.reduce((a, b) => a + b, 0) / losses.length
    const [all, left] = [mean(run.losses), mean(now.losses)]
    counts.textContent = filled(words.counts, { one: run.count, two: run.second, most: model.longest })
    said.textContent = filled(cut.length ? words.loss_now : words.loss, { all: two(all), now: two(left), more: signed(Number(left.toFixed(2)) - Number(all.toFixed(2))), count: cut.length })
    drawBars(next[state.word], now.next[state.word], read[state.word], state.word)
    list.replaceChildren(...cut.map(each => element("li", [`${each.mlp ? filled(words.mlp_of, { layer: each.layer + 1 }) : key(each)} `,
      Object.assign(button("×", () => remove(each)), { className: "mh-chip", ariaLabel: filled(words.back, { name: key(each) }) })])))
    if (!cut.length) list.replaceChildren(element("li", words.nothing))
    firstOnes.disabled = numbers === null
    mlp.textContent = filled(words.mlp, { layer: headAt(state.head).layer + 1 })
    wholeLayer.textContent = filled(words.layer, { layer: headAt(state.head).layer + 1 })
    lot.textContent = filled(headsCut().length ? words.lot_instead : words.lot, { count: headsCut().length || LOT })
    const data = { tokens: read, count, row }
    grid.update(data, order, { head: state.head, cut: Array.from({ length: count }, (_, i) => i).filter(isCut) }, numbers, highest)
    map.update(data, state)
    const rank = numbers ? 1 + numbers.filter(x => x > numbers[state.head]).length : null
    title.replaceChildren(element("strong", nameOf(state.head, heads)), numbers ? `${punctuation.colon}${words.sorts[sort.value]} ${two(numbers[state.head])}${punctuation.comma}${filled(words.rank, { rank, count })}` : "",
      `${punctuation.full_stop}${punctuation.sentence_space}${filled(words.weight, { query: read[state.word], key: read[state.key], weight: two(row(state.head, state.word)[state.key] ?? 0) })}`)
    toggle.textContent = filled(isCut(state.head) ? words.put_back : words.cut, { name: key(headAt(state.head)) })
    limit.textContent = numbers === null ? (sort.value === "layers" ? words.by_layer : sort.value === "alone" ? words.alone_first : words.no_pattern)
      : highest === undefined ? words.sorted[sort.value]
        : filled(words.above, { above: numbers.filter(x => x > highest).length, count, limit: two(highest) })
    as.querySelector("[value=other]").disabled = run.second !== run.count
    tell(said.textContent)
  }

  /** The likeliest tokens before the cuts and after them, side by side. */
  let barsOf = null
  async function drawBars(first, after, token, position) {
    if (barsOf?.now === now && barsOf.position === position) return
    const mine = (barsOf = { now, position })
    const wanted = [...new Map([...first.slice(0, SHOWN), ...(cut.length ? after.slice(0, 3) : [])].map(each => [each[0], each])).values()]
    const chances = cut.length ? await engine.ask("chances", { cut, position, tokens: wanted.map(([number]) => number) }) : null
    const was = await engine.ask("chances", { cut: [], position, tokens: wanted.map(([number]) => number) })
    if (mine !== barsOf) return
    bars.classList.remove("mh-old")
    const bar = (share, name) => element("span", "", { className: name, style: `width: ${(100 * share).toFixed(1)}%` })
    bars.replaceChildren(element("caption", filled(words.next, { token })), element("tbody", wanted.map(([, shown], i) => element("tr", [
      element("th", shown, { scope: "row" }),
      element("td", [bar(was[i], "mh-was"), ...(chances ? [bar(chances[i], "mh-is")] : [])]),
      element("td", chances ? `${percent(was[i])} → ${percent(chances[i])}` : percent(was[i])),
    ]))))
  }

  /** The loss of the answer's probability without each head alone, one after the other; stopped by the same key. */
  let measuring = false
  async function eachAlone() {
    if (measuring) return (measuring = false)
    measuring = true
    oneByOne.textContent = words.stop
    const [position, token, of] = [state.word, run.next[state.word][0][0], run]
    const found = new Float64Array(count).fill(NaN)
    const began = performance.now()
    const [was] = await engine.ask("chances", { cut: [], position, tokens: [token] })
    for (let i = 0; i < count && measuring && run === of; i++) {
      const [is] = await engine.ask("chances", { cut: [{ ...headAt(count - 1 - i), as: "zero" }], position, tokens: [token] })
      found[count - 1 - i] = Math.log(was / is)
      const left = (performance.now() - began) / (i + 1) * (count - i - 1) / 1000
      limit.textContent = filled(words.measured, { now: i + 1, count, left: Math.ceil(left) })
    }
    measuring = false
    oneByOne.textContent = words.each
    if (run !== of) return
    alone = found.map(x => (Number.isNaN(x) ? -Infinity : x))  // what was stopped before it was cut stands last
    sort.value = "alone"
    resort({ first: true })
  }

  /** Writes on, token by token, until somebody presses again. */
  let writing = false
  async function write() {
    if (writing) return (writing = false)
    writing = true
    writeOn.textContent = words.stop
    while (writing && run && run.count < model.longest) {
      text.value = (await engine.ask("write", { cut })).replace(/^<\|im_start\|>/, "")
      choice.value = ""
      await read()
    }
    writing = false
    writeOn.textContent = words.write
  }

  /** The stream of the second text put in at each layer and place: what it makes of the difference of the two answers. */
  function patchGrid() {
    const explain = element("p", words.patch_about)
    const table = element("table", "", { className: "mh-patch" })
    const line = element("p", "", {}, { role: "status" })
    let going = false
    const press = button(words.patch, async () => {
      if (going) return (going = false)
      if (!run || run.second !== run.count) return void (line.textContent = filled(words.patch_needs, { one: run?.count ?? 0, two: run?.second ?? 0 }))
      const position = run.count - 1
      const [one] = run.next[position][0]
      const there = await engine.ask("secondBest", { position })
      if (there === one) return void (line.textContent = words.patch_same)
      going = true
      press.textContent = words.stop
      const answers = [one, there]
      const from = await engine.ask("patch", { layer: null, position, tokens: answers })
      const to = await engine.ask("second", { position, tokens: answers })
      const rows = Array.from({ length: layers }, (_, layer) => element("tr", [element("th", layer + 1, { scope: "row" }), ...run.tokens.map(() => element("td"))]))
      table.replaceChildren(element("thead", element("tr", [element("th"), ...run.tokens.map(token => element("th", token, { scope: "col" }))])), element("tbody", rows))
      const began = performance.now()
      for (let layer = layers - 1; layer >= 0 && going; layer--) {
        for (let at = 0; at < run.count && going; at++) {
          const moved = (from - await engine.ask("patch", { layer, place: at, position, tokens: answers })) / (from - to)
          const cell = rows[layer].cells[at + 1]
          cell.style.setProperty("--weight", `${100 * Math.max(0, Math.min(1, moved))}%`)
          cell.title = filled(words.patch_cell, { layer: layer + 1, token: run.tokens[at], moved: two(moved) })
          cell.textContent = Math.abs(moved) >= 0.05 ? two(moved) : "0"
          cell.className = "mh-known"
        }
        const rest = (performance.now() - began) / (layers - layer) * layer / 1000
        line.textContent = filled(words.patch_going, { layer: layer + 1, left: Math.ceil(rest) })
      }
      if (!run || !table.rows.length) return void (press.textContent = words.patch)
      line.textContent = going ? words.patch_done : words.patch_stopped
      going = false
      press.textContent = words.patch
    })
    const forget = () => {
      going = false
      table.replaceChildren()
      line.textContent = ""
    }
    return { forget, place: element("details", [element("summary", words.patch_title), explain, press, line, element("div", table, { className: "md-typeset__scrollwrap" })]) }
  }

  // The address keeps the state
  function remember() {
    const own = named.find(([, each]) => each.text === text.value)
    keep({
      sentence: own ? own[0] : null, text: own ? null : text.value, second: second.value || null, start: start.checked ? 1 : null,
      cut: cut.length ? cut.map(key).join(",") : null, as: as.value === "zero" ? null : as.value,
      sort: sort.value === "layers" ? null : sort.value, head: state.head ? key(headAt(state.head)) : null,
    })
  }
  function restore() {
    const query = asked()
    const chosen = sentences[query.get("sentence")]
    choice.value = chosen ? query.get("sentence") : query.get("text") === null ? named[0][0] : ""
    text.value = chosen?.text ?? query.get("text") ?? named[0][1].text
    second.value = query.get("second") ?? chosen?.second ?? sentences[choice.value]?.second ?? ""
    start.checked = query.get("start") === "1"
    if ([...as.options].some(each => each.value === query.get("as"))) as.value = query.get("as")
    if ([...sort.options].some(each => each.value === query.get("sort"))) sort.value = query.get("sort")
    const found = name => {
      const [, layer, head] = /^(\d+)\.(\d+|mlp)$/.exec(name) ?? []
      if (!(0 < layer && layer <= layers)) return []
      if (head === "mlp") return [{ layer: layer - 1, mlp: true }]
      return 0 < head && head <= heads ? [{ layer: layer - 1, head: head - 1 }] : []
    }
    cut = (query.get("cut") ?? "").split(",").flatMap(found).map(each => ({ ...each, as: as.value }))
    const [head] = found(query.get("head") ?? "")
    if (head?.head !== undefined) state.head = numberOf(head)
    form.querySelector("details").open = Boolean(query.get("second") || start.checked)
  }

  let timer = null
  const typed = () => { clearTimeout(timer); timer = setTimeout(() => { choice.value = ""; read() }, 300) }
  for (const field of [text, second]) {
    field.addEventListener("input", event => event.isComposing || typed())
    field.addEventListener("compositionend", typed)
  }
  form.addEventListener("submit", event => event.preventDefault())
  choice.addEventListener("change", () => {
    const chosen = sentences[choice.value]
    if (!chosen) return
    text.value = chosen.text
    second.value = chosen.second ?? ""
    ;[cut, before] = [[], []]
    read({ first: true })
  })
  start.addEventListener("change", () => read())
  sort.addEventListener("change", () => resort({ first: true }).then(remember))
  as.addEventListener("change", () => { cut = cut.map(each => ({ ...each, as: as.value })); changed() })
  new ResizeObserver(() => render()).observe(place)
  new MutationObserver(() => render()).observe(document.body, { attributeFilter: ["data-md-color-scheme"] })
  restore()
  return read()
}

mount("cut-heads", show)
