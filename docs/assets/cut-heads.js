// SmolLM2 on the reader's sentence: all maps, what comes next, and the knife. The model is in a worker (smollm-worker.js); here
// is what is asked of it and how it is shown.

import { asked, element, filled, keep, mount, punctuation, teller, two } from "./dom.js"
import { answerBars } from "./cut-heads-answers.js"
import { draggable } from "./cut-heads-drag.js"
import { patchGrid } from "./cut-heads-grid.js"
import { tokenRow } from "./cut-heads-losses.js"
import { drawn, manyLots } from "./cut-heads-lots.js"
import { button, left, stopWord, stopWork, work } from "./cut-heads-work.js"
import { largeMap, nameOf, smallMaps } from "./head-maps.js"
import { PATTERNS, placesOf, redrawn, shares } from "./head-statistics.js"
import { files } from "./smollm-files.js"

const words = wordsOf("cut-heads")
const here = new URL(".", import.meta.url)
const ABOUT = new URL("../data/cut-heads/about.json", import.meta.url)
const LOT = 5  // heads of a preset
const MB = 1e6
const MEMORY = 700  // MB that the page may take: a test measures them
const OWN = ["zero", "mean"]  // what a head gives that is cut; all else comes from the second text
const SECOND = ["other", "query", "key", "value", "path"]
const signed = x => (Math.abs(x) < 0.005 ? "±" : x > 0 ? "+" : "−") + two(Math.abs(x))

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
  const stop = button(stopWord, () => { engine?.end(new Error("stopped")) })
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
  const key = ({ layer, head, mlp, stream }) => `${layer + 1}${stream === undefined ? `.${mlp ? "mlp" : head + 1}` : `@${stream + 1}`}`
  const numberOf = ({ layer, head }) => layer * heads + head
  const headAt = number => ({ layer: Math.floor(number / heads), head: number % heads })
  let cut = []  // what is cut, in the order of the cuts
  let before = []  // earlier lists and what was done with them, for undo
  let run = null  // the text with all heads
  let now = null  // the same with the cuts
  let [order, numbers, highest, alone] = [[], null, undefined, null]
  const state = { head: 0, word: 0, key: 0 }
  const paired = () => run !== null && run.second === run.count
  let wished = null  // answer, rival and position of the address, for the first text
  let busy = 0  // the number of the latest question; answers to earlier ones are let go

  // Fields
  const named = Object.entries(sentences)
  const choice = element("select", [["", words.own], ...named.map(([name, { title }]) => [name, title])].map(([value, text]) => element("option", text, { value })), { name: "sentence" })
  const text = element("textarea", "", { name: "text", rows: 2, value: named[0][1].text, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const second = element("textarea", "", { name: "second", rows: 2, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const start = element("input", "", { type: "checkbox", name: "start" })
  const option = value => element("option", words.as[value], { value })
  const from = element("optgroup", SECOND.map(option), { label: words.from_second })
  const as = element("select", [...OWN.map(option), from], { name: "as" })
  const here = element("input", "", { type: "checkbox", name: "here" })
  const hereWords = element("span")
  const to = element("select", "", { name: "to" })
  const part = element("select", ["query", "key", "value"].map(value => element("option", words.parts[value], { value })), { name: "part" })
  const path = element("span", [element("label", [words.path_to, " ", to]), element("label", [words.path_part, " ", part])], { className: "mh-path" })
  const carried = element("div", [path, element("label", [here, hereWords], { className: "mh-here" })])
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
  const tokens = tokenRow(i => { moveTo(i).then(() => tokens.focus(i)) })
  const bars = answerBars(engine, () => run.next[state.word], () => { lots.forget(); resort().then(remember) })
  const writeOn = button(words.write, () => work(writeOn, () => words.write, write))

  // The knife
  const list = element("ul", "", { className: "mh-cuts" }, { "aria-label": words.cuts })
  const mlp = button("", () => add([{ layer: headAt(state.head).layer, mlp: true }]))
  const wholeLayer = button("", () => add(Array.from({ length: heads }, (_, head) => ({ layer: headAt(state.head).layer, head }))))
  const firstOnes = button(filled(words.first, { count: LOT }), () => add(order.filter(each => !isCut(each)).slice(0, LOT).map(headAt)))
  // The control of every cut: as many heads by lot in the place of those that are cut.
  const headsCut = () => cut.filter(each => each.head !== undefined)
  const lot = button("", () => {
    const left = Array.from({ length: count }, (_, i) => i).filter(each => !isCut(each))
    note()
    cut = drawn(left, headsCut().length || LOT).map(headAt)
    changed()
  })
  const lots = manyLots(engine, { heads, name: number => key(headAt(number)) }, () => {
    const cutNow = headsCut().map(numberOf).sort((one, other) => one - other)
    const others = cut.filter(each => each.head === undefined)
    return {
      heads: cutNow, position: state.word, bars, count, asked: lot => dressed([...others, ...lot.map(headAt)]),
      same: (tokens, heads) => String([bars.tokens(), cutNow]) === String([tokens, heads]),
    }
  })
  const knife = element("fieldset", [
    element("legend", words.knife),
    element("label", [words.cut_to, " ", as]), carried,
    list,
    element("div", [
      firstOnes, lot, lots.key,
      button(words.undo, () => { if (before.length) { [cut, as.value] = before.pop(); changed() } }),
      button(words.none, () => { if (cut.length) { note(); cut = []; changed() } }),
    ], { className: "mh-buttons" }),
    lots.place,
    element("details", [element("summary", words.groups), element("div", [
      ...Object.entries(roles).map(([name, found]) => button(filled(words.roles[name], { count: found.length }), () => add(found.map(([layer, head]) => ({ layer, head }))))),
      mlp, wholeLayer,
    ], { className: "mh-buttons" })]),
  ], { className: "mh-knife" })

  // Maps
  const grid = smallMaps({ layers, heads, group: model.group, causal: true }, head => { state.head = head; mark(); render(); remember() },
    head => { state.head = head; isCut(head) ? remove(headAt(head)) : add([headAt(head)]) })
  const choose = (word, key) => {
    state.key = key
    word === state.word ? resort({ stay: true }) : moveTo(word, { stay: true })
  }
  const [map, otherMap] = [largeMap(choose, () => {}), largeMap(choose, () => {})]
  const title = element("p", "", { className: "mh-said" })
  const toggle = button("", () => (isCut(state.head) ? remove(headAt(state.head)) : add([headAt(state.head)])))
  // The same head in the second text: its map can be put in the place of the first one's.
  const grip = element("p", words.drag, { className: "mh-grip" })
  const bring = button("", () => patch())
  const otherPart = element("div", [grip, bring, element("div", otherMap.place)], { className: "mh-other" })
  draggable([grip, otherMap.place], otherPart.lastChild, [grid.place, map.place], () => patch())
  const limit = element("p", "", { className: "mh-limit" })
  const oneByOne = button(words.each, () => work(oneByOne, () => words.each, eachAlone))
  const patching = patchGrid(engine, layers, () => ({ run, position: state.word, tokens: bars.tokens() }), (layer, stream) => add([{ layer, stream }]))
  const shownPart = element("div", [
    element("div", [element("div", [bars.table, bars.line, element("div", [writeOn, bars.word], { className: "mh-buttons" })]), knife], { className: "mh-pair" }),
    element("div", [element("label", [words.sort, " ", sort]), oneByOne], { className: "mh-buttons mh-sorting" }), limit,
    element("div", [grid.place, element("div", [title, toggle, map.place, otherPart], { className: "mh-panel" })], { className: "mh-browse" }), patching.place])
  place.replaceChildren(form, tokens.place, said, shownPart, told)

  /** The key that the large map marks: of a pair the reader's, else the one that gets most. */
  function mark() {
    const weights = row(state.head, state.word)
    if (sort.value !== "pair" || !(state.key <= state.word)) state.key = weights.indexOf(Math.max(...weights))
  }

  const note = () => before.push([cut, as.value])
  const isCut = number => cut.some(each => each.head !== undefined && numberOf(each) === number)
  const rowOf = ({ tokens: { length: L }, maps }) => (head, i) => {
    const { layer, head: h } = headAt(head)
    return Array.from(maps[layer].subarray((h * L + i) * L, (h * L + i) * L + i + 1))
  }
  const row = (head, i) => rowOf(run)(head, i)

  /** The cuts as the model is asked for them. */
  function dressed(list) {
    const at = SECOND.includes(as.value) && here.checked ? { at: state.word } : {}
    const [layer, head] = to.value.split(".").map(x => x - 1)
    const end = as.value === "path" ? { to: to.value ? { layer, head, part: part.value } : null } : {}
    return list.map(each => ({ ...each, as: as.value, ...at, ...end, ...(each.stream === undefined ? {} : { as: "other" }) }))
  }

  /** What can't come along a path or has no query goes back; where a path can end. */
  function fitting() {
    if (["query", "key", "value", "path"].includes(as.value)) cut = cut.filter(each => !each.mlp)
    const behind = Math.max(-1, ...headsCut().map(each => each.layer)) + 1
    if (Number(to.dataset.behind) === behind) return
    const was = to.value
    to.dataset.behind = behind
    const ends = Array.from({ length: count }, (_, i) => headAt(i)).filter(each => each.layer >= behind).map(key)
    to.replaceChildren(element("option", words.path_output, { value: "" }), ...ends.map(name => element("option", name, { value: name })))
    to.value = ends.includes(was) ? was : ""
  }

  function add(more) {
    const kept = cut.filter(each => !more.some(other => key(other) === key(each)))
    note()
    cut = [...kept, ...more]
    changed()
  }

  /** The chosen head from the second text; what was cut goes back. */
  function patch() {
    if (SECOND.includes(as.value)) return isCut(state.head) || add([headAt(state.head)])
    note()
    cut = [headAt(state.head)]
    as.value = "other"
    changed()
  }

  function remove(which) {
    const at = cut.findIndex(each => key(each) === key(which))
    const held = list.contains(document.activeElement)
    note()
    cut = cut.filter((_, i) => i !== at)
    changed().then(() => { if (held) (list.querySelectorAll("button")[Math.min(at, cut.length - 1)] ?? toggle).focus() })
  }

  /** The text anew: all heads, then with the cuts. */
  async function read({ first = false, goes = false } = {}) {
    if (!goes) stopWork()
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
    run = now = answer
    alone = null
    state.word = run.tokens.length - 1
    bars.forget()
    if (wished) {  // what the address asked for
      state.word = Math.min(wished.word ?? state.word, state.word)
      bars.chosen = wished.tokens
      wished = null
    }
    if (!paired() && SECOND.includes(as.value)) as.value = "zero"  // without a second text of this length
    cut = cut.filter(({ stream }) => stream === undefined || (paired() && stream < run.count))
    await changed({ first })
  }

  /** After a cut: the answer, and what it was before. */
  async function changed(how = {}) {
    if (!run) return
    const mine = ++busy
    place.setAttribute("aria-busy", true)
    fitting()
    lots.forget()
    const answer = cut.length ? await engine.ask("cut", { cut: dressed(cut) }) : run
    if (mine !== busy) return
    now = answer
    bars.table.classList.add("mh-old")
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
    else if (sort.value === "direct") numbers = await engine.ask("direct", { position: state.word, tokens: bars.tokens() })
    else if (sort.value === "alone") numbers = alone?.found ?? null
    order = Array.from({ length: count }, (_, i) => i)
    if (numbers) order.sort((one, other) => numbers[other] - numbers[one] || one - other)
    if (numbers && first) state.head = order[0]
    if (!stay) mark()
    render()
  }

  function render() {
    if (!run) return
    const { tokens: read } = run
    const weights = row(state.head, state.word)
    tokens.update({ run, after: now, cut, word: state.word, weight: i => weights[i] ?? 0 })
    const mean = losses => losses.reduce((a, b) => a + b, 0) / losses.length
    const [all, left] = [mean(run.losses), mean(now.losses)]
    counts.textContent = filled(words.counts, { one: run.count, two: run.second, most: model.longest })
    said.textContent = filled(cut.length ? words.loss_now : words.loss, { all: two(all), now: two(left), more: signed(Number(left.toFixed(2)) - Number(all.toFixed(2))), count: cut.length })
    bars.update({ run, now, cut: dressed(cut), position: state.word, paired: paired() })
    list.replaceChildren(...cut.map(each => element("li", [`${nameOfCut(each)} `,
      Object.assign(button("×", () => remove(each)), { className: "mh-chip", ariaLabel: filled(words.back, { name: nameOfCut(each) }) })])))
    if (!cut.length) list.replaceChildren(element("li", words.nothing))
    firstOnes.disabled = numbers === null
    mlp.disabled = !["zero", "mean", "other"].includes(as.value)
    lots.key.disabled = !headsCut().length
    carried.hidden = !SECOND.includes(as.value)
    path.hidden = as.value !== "path"
    part.disabled = to.value === ""
    from.disabled = !paired()
    hereWords.textContent = filled(words.here, { token: read[state.word] })
    mlp.textContent = filled(words.mlp, { layer: headAt(state.head).layer + 1 })
    wholeLayer.textContent = filled(words.layer, { layer: headAt(state.head).layer + 1 })
    lot.textContent = filled(headsCut().length ? words.lot_instead : words.lot, { count: headsCut().length || LOT })
    const data = { tokens: read, count, row }
    grid.update(data, order, { head: state.head, cut: Array.from({ length: count }, (_, i) => i).filter(isCut) }, numbers, highest)
    map.update(data, state)
    otherPart.hidden = !paired()
    if (paired()) otherMap.update({ tokens: run.other.tokens, row: rowOf(run.other) }, state)
    bring.textContent = filled(words.bring, { name: key(headAt(state.head)) })
    bring.disabled = isCut(state.head) && SECOND.includes(as.value)
    const known = numbers && Number.isFinite(numbers[state.head])
    const rank = known ? 1 + numbers.filter(x => x > numbers[state.head]).length : null
    title.replaceChildren(element("strong", nameOf(state.head, heads)), known ? `${punctuation.colon}${words.sorts[sort.value]} ${two(numbers[state.head])}${punctuation.comma}${filled(words.rank, { rank, count })}` : "",
      `${punctuation.full_stop}${punctuation.sentence_space}${filled(words.weight, { query: read[state.word], key: read[state.key], weight: two(row(state.head, state.word)[state.key] ?? 0) })}`)
    toggle.textContent = filled(isCut(state.head) ? words.put_back : SECOND.includes(as.value) ? words.patch_head : words.cut, { name: key(headAt(state.head)) })
    limit.textContent = numbers === null ? (sort.value === "layers" ? words.by_layer : sort.value === "alone" ? words.alone_first : words.no_pattern)
      : sort.value === "alone" ? alone.said
      : highest === undefined ? filled(words.sorted[sort.value], { measure: bars.measureOf("logit") })
        : filled(words.above, { above: numbers.filter(x => x > highest).length, count, limit: two(highest) })
    tell(said.textContent)
  }

  const nameOfCut = each => (each.mlp ? filled(words.mlp_of, { layer: each.layer + 1 })
    : each.stream !== undefined ? filled(words.stream_of, { layer: each.layer + 1, token: run.tokens[each.stream] }) : key(each))

  /** Another position: what comes next there. */
  async function moveTo(i, how) {
    state.word = i
    bars.forget()
    lots.forget()
    await (here.checked && SECOND.includes(as.value) ? changed(how) : resort(how))
    remember()
  }

  /** What is lost without each head alone, or when it alone comes from the second text. */
  async function eachAlone(wanted) {
    const [position, tokens, of] = [state.word, bars.tokens(), run]
    const found = new Float64Array(count).fill(NaN)
    const said = filled(words.sorted.alone, { measure: bars.measureOf("log"), how: as.selectedOptions[0].textContent })
    const one = number => dressed([headAt(number)])
    const able = number => as.value !== "path" || to.value === "" || headAt(number).layer < Number(to.value.split(".")[0]) - 1
    const ordered = Array.from({ length: count }, (_, i) => count - 1 - i).filter(able)
    const asks = ordered.map(number => [number, one(number)])
    const began = performance.now()
    const was = bars.measured(await engine.ask("measure", { cut: [], position, tokens }))
    for (const [i, [number, cut]] of asks.entries()) {
      if (!wanted()) break
      found[number] = was - bars.measured(await engine.ask("measure", { cut, position, tokens }))
      limit.textContent = filled(words.measured, { now: i + 1, count: asks.length, left: left(began, i + 1, asks.length) })
    }
    if (run !== of) return
    alone = { said, found: found.map(x => (Number.isNaN(x) ? -Infinity : x)) }  // what was stopped before it was cut stands last
    sort.value = "alone"
    resort({ first: true })
  }

  /** Writes on, token by token, until somebody presses again. */
  async function write(wanted) {
    while (wanted() && run && run.count < model.longest) {
      text.value = (await engine.ask("write", { cut: dressed(cut) })).replace(/^<\|im_start\|>/, "")
      choice.value = ""
      await read({ goes: true })
    }
  }

  // The address keeps the state
  function remember() {
    const own = named.find(([, each]) => each.text === text.value)
    keep({
      sentence: own ? own[0] : null, text: own ? null : text.value, second: second.value || null, start: start.checked ? 1 : null,
      cut: cut.length ? cut.map(key).join(",") : null, as: as.value === "zero" ? null : as.value,
      sort: sort.value === "layers" ? null : sort.value, head: state.head ? key(headAt(state.head)) : null,
      here: here.checked && !carried.hidden ? 1 : null, to: path.hidden ? null : to.value || "output", part: path.hidden || !to.value ? null : part.value,
      at: !run || state.word === run.count - 1 ? null : state.word + 1, answer: bars.chosen.join(",") || null,
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
      const [, layer, sign, rest] = /^(\d+)([.@])(\d+|mlp)$/.exec(name) ?? []
      if (!(0 < layer && layer <= layers)) return []
      if (rest === "mlp") return [{ layer: layer - 1, mlp: true }]
      if (sign === "@") return rest > 0 && rest <= model.longest ? [{ layer: layer - 1, stream: rest - 1 }] : []
      return 0 < rest && rest <= heads ? [{ layer: layer - 1, head: rest - 1 }] : []
    }
    cut = (query.get("cut") ?? "").split(",").flatMap(found)
    here.checked = query.get("here") === "1"
    fitting()
    to.value = [...to.options].some(each => each.value === query.get("to")) ? query.get("to") : ""
    if ([...part.options].some(each => each.value === query.get("part"))) part.value = query.get("part")
    const tokens = (query.get("answer") ?? "").split(",").filter(each => /^\d{1,6}$/.test(each)).map(Number).filter(each => each < model.vocabulary)
    wished = { tokens: [...new Set(tokens)].slice(0, 2), word: query.get("at") > 0 ? query.get("at") - 1 : null }
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
  for (const field of [as, here, to, part]) field.addEventListener("change", () => changed())
  new ResizeObserver(() => render()).observe(place)
  new MutationObserver(() => render()).observe(document.body, { attributeFilter: ["data-md-color-scheme"] })
  restore()
  return read()
}

mount("cut-heads", show)
