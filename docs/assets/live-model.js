// The trained model of the page live-model.md on what the reader types: losses, maps of all heads, what comes next.
// The model itself is model.js. With the option small it only completes a name, with its heads and without, on the home page.

import { MOVES, asked, element, filled, keep, mount, punctuation, teller } from "./dom.js"
import { copier, draw, encode, forwardInTurns, losses, mean, random, read, softmax } from "./model.js"

const FILE = new URL("../data/live-model/model.bin", import.meta.url)
const LONGEST = 160  // characters that it adds at most, and without moving pictures
const AT_ONCE = 40
const PACE = 90  // milliseconds a character
const EXPECTED = 8  // next characters that have a bar
const CELL = 11  // the least width of a map's cell, in pixels, so that its letter can be read
const words = wordsOf("live-model")
const SHOWN = { " ": "␣", "\n": "↵" }
const shown = letter => SHOWN[letter] ?? letter
const LIKE = { "'": "’", ",": "，", ".": "。", "?": "？", "!": "！" }  // what a keyboard has, where the vocabulary has the other
const digits = x => x.toFixed(2).replace("-", "−")
const signed = x => (x >= 0.005 ? "+" : "") + digits(Math.abs(x) < 0.005 ? 0 : x)

let loaded = null

/** The model, fetched once for all widgets of a page. */
export function load() {
  loaded ??= fetch(FILE).then(answer => {
    if (!answer.ok) throw new Error(answer.status)
    return answer.arrayBuffer()
  }).then(read).then(async model => ({ ...model, copier: (await copier(model)).name }))
  loaded.catch(() => { loaded = null })
  return loaded
}

/** What the model reads of a text: its last characters, each as one that the vocabulary has, if there is one like it. */
export function lastOf(model, text) {
  const all = [...text].map(c => (!model.numbers.has(c) && model.numbers.has(LIKE[c]) ? LIKE[c] : c))
  return { letters: all.slice(-model.context), count: all.length }
}

/** One more character, drawn by what the model expects. */
export async function following(model, text, off, temperature, next) {
  const { logits } = await forwardInTurns(model, encode(model, lastOf(model, text).letters), off)
  return model.letters[draw(logits.at(-1), temperature, next)]
}

/** Why it could not be loaded, for a reader. */
const reason = ({ message }) => words.failed + (/^\d+$/.test(message) ? message : words.offline)

/** Fill a place as soon as the model is there, or say why it isn't. */
async function withModel(place, show) {
  place.replaceChildren(element("p", words.loading, {}, { role: "status" }))
  try {
    show(await load())
  } catch (error) {
    const again = element("button", words.again, { type: "button", className: "md-button" })
    again.addEventListener("click", () => withModel(place, show))
    place.replaceChildren(element("p", reason(error), {}, { role: "alert" }), again)
  }
}

const button = (text, press) => {
  const made = element("button", text, { type: "button", className: "md-button" })
  made.addEventListener("click", press)
  return made
}
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches

/** Adds what `next` gives to the text that `now` gives, and shows it, until somebody stops it. */
function writer(now, next, show, changed) {
  let run = null
  const stop = () => {
    if (!run) return
    run = null
    changed(false)
  }
  async function start() {
    const mine = (run = {})
    changed(true)
    let text = now()
    for (let left = still() ? AT_ONCE : LONGEST; left && run === mine; left--) {
      const letter = await next(text)
      if (run !== mine) return
      text += letter
      if (!still()) await Promise.all([show(text), new Promise(go => setTimeout(go, PACE))])
    }
    if (run !== mine) return
    if (still()) await show(text)
    stop()
  }
  return { stop, toggle: () => (run ? stop() : start()), isOn: () => run !== null }
}

function show(place, model) {
  const names = Array.from({ length: model.layers * model.heads }, (_, i) => `${Math.floor(i / model.heads) + 1}.${(i % model.heads) + 1}`)
  const off = new Set()
  const opening = [...model.example].length - 1  // the character that is chosen at first
  const first = names.indexOf(model.copier)
  let [head, chosen, key] = [first, opening, null]  // null: the last
  let pointed = null  // a cell of the large map below the mouse: it is shown, and forgotten
  let state = null
  let next = null

  const text = element("textarea", "", { name: "text", rows: 3, value: model.example, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const other = element("textarea", "", { name: "other", rows: 2, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const slider = element("input", "", { type: "range", name: "temperature", min: 0, max: 1.5, step: 0.05, defaultValue: 0 })
  const degrees = element("span")
  const seed = element("input", "", { type: "number", name: "seed", min: 0, step: 1, defaultValue: 1 })
  const press = button(words.write, () => writing.toggle())
  const writing = writer(
    () => text.value || "\n",
    written => following(model, written, off, Number(slider.value), next),
    async written => {
      text.value = written
      chosen = key = null
      await update()
      text.scrollTop = text.scrollHeight
    },
    on => { press.textContent = on ? words.stop : words.write; if (!on) { update(); remember() } })
  const form = element("form", [
    element("label", [words.text, text], { className: "mh-wide" }), element("label", [words.other, other], { className: "mh-wide" }),
    element("label", [words.temperature, " ", degrees, slider]), element("label", [words.seed, seed]),
    element("div", [press, element("button", words.reset, { type: "reset", className: "md-button" })], { className: "mh-buttons mh-half" }),
  ])
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()
  const strip = element("div", "", { className: "mh-letters" }, { role: "group", "aria-label": words.text })
  const about = element("p", "", { className: "mh-sum" })
  const expected = element("table", "", { className: "mh-expected" })
  const cards = names.map((name, i) => {
    const canvas = element("canvas")
    const choose = element("button", canvas, { type: "button" }, { "aria-label": filled(words.show, { head: name }) })
    choose.addEventListener("click", () => { head = i; render(); remember() })
    const box = element("input", "", { type: "checkbox", name: `head-${name}`, checked: true }, { "aria-label": filled(words.on, { head: name }) })
    box.addEventListener("change", () => { box.checked ? off.delete(name) : off.add(name); update(); remember() })
    const effect = element("output")
    const card = element("div", [choose, element("label", [box, " ", name, " ", effect])], { className: "mh-head-card" })
    return { card, canvas, choose, box, effect }
  })
  const allOn = button(words.all, () => { off.clear(); cards.forEach(card => { card.box.checked = true }); update(); remember() })
  const map = element("canvas", "", {}, { tabindex: 0, role: "img" })
  const sides = ["mh-map-top", "mh-map-left"].map(className => element("div", "", { className }, { "aria-hidden": true }))
  const mark = element("div", "", { className: "mh-map-mark" })
  const large = element("div", [sides[0], sides[1], element("div", [map, mark], { className: "mh-map-cells" })], { className: "mh-map" })
  const title = element("p", "", { className: "mh-map-title" })
  const partial = element("p")

  /** Run the model on the text, with all heads and with those that are on; only for the latest that is asked. */
  let latest = 0
  async function update() {
    const mine = ++latest
    const isOld = () => mine !== latest
    degrees.textContent = digits(Number(slider.value))
    const { letters, count } = lastOf(model, text.value)
    const ids = encode(model, letters)
    place.setAttribute("aria-busy", letters.length > 0)
    if (letters.length === 0) {
      state = null
      said.textContent = words.empty
      return render()
    }
    const whole = await forwardInTurns(model, ids, new Set(), isOld)
    const source = off.size && other.value ? await forwardInTurns(model, encode(model, lastOf(model, other.value).letters), new Set(), isOld) : null
    const now = off.size && whole ? await forwardInTurns(model, ids, off, isOld, source?.found) : whole
    if (isOld()) return
    state = { letters, ids, ...now, losses: losses(now.logits, ids), whole: mean(losses(whole.logits, ids)) }
    const unknown = [...new Set(letters.filter((_, i) => ids[i] === model.letters.length))]
    said.textContent = [
      state.whole === null ? words.no_loss
        : filled(off.size ? words.loss_now : words.loss, { all: digits(state.whole), now: digits(mean(state.losses)) }),
      count > letters.length ? filled(words.seen, { seen: letters.length, all: count }) : "",
      unknown.length ? filled(words.unknown, { letters: unknown.map(shown).join(" ") }) : "",
    ].filter(Boolean).join(" · ")
    const color = getComputedStyle(place).getPropertyValue("--mh-weights")
    cards.forEach(({ canvas }, i) => paint(canvas, color, state.weights[Math.floor(i / model.heads)][i % model.heads], 0))
    render()
    place.setAttribute("aria-busy", false)
    measureEffects(isOld)
  }

  /** The loss without each head alone, one after the other, whenever the page has time for it. */
  async function measureEffects(isOld) {
    const { ids, whole } = state
    await new Promise(go => setTimeout(go, 120))
    for (const [i, name] of names.entries()) {
      if (isOld() || writing.isOn()) return
      const run = await forwardInTurns(model, ids, new Set([name]), isOld)
      if (!run) return
      cards[i].effect.value = whole === null ? "" : signed(mean(losses(run.logits, ids)) - whole)
    }
  }

  function render() {
    const there = state !== null
    for (const each of [strip, about, expected, title, large, partial]) each.hidden = !there
    cards.forEach(({ choose, card, effect }, i) => {
      choose.setAttribute("aria-pressed", i === head)
      card.classList.toggle("mh-off", off.has(names[i]))
      if (!there) effect.value = ""
    })
    if (!there) return tell(said.textContent)
    const { letters, ids, weights, logits } = state
    const place_ = pointed?.[0] ?? chosen ?? letters.length - 1
    const row = weights[Math.floor(head / model.heads)][head % model.heads]
    drawStrip(letters, ids, place_, row[place_])
    const loss = state.losses[place_]
    const letter = shown(letters[place_])
    const wording = loss !== null ? words.at : ids[place_] === model.letters.length ? words.blank : words.first
    about.textContent = filled(wording, { letter, loss: loss !== null && digits(loss) })
    drawExpected(letter, softmax(logits[place_]), letters[place_ + 1])
    drawMap(letters, row, place_)
    if (!pointed && !writing.isOn()) tell([said, about, expected.rows[0]].map(each => each.textContent).join(" · "))
  }

  let keys = []
  function drawStrip(letters, ids, place_, row) {
    if (keys.length > letters.length) keys.splice(letters.length).forEach(each => each.remove())
    while (keys.length < letters.length) {
      const i = keys.length
      const made = element("button", "", { type: "button" })
      made.addEventListener("click", () => { choose(i); made.focus() })
      keys.push(made)
      strip.append(made)
    }
    keys.forEach((each, i) => {
      const loss = state.losses[i]
      each.textContent = letters[i] === "\n" ? "↵" : letters[i]
      each.style.setProperty("--loss", `${Math.round(Math.min(100, 18 * (loss ?? 0)))}%`)
      each.style.setProperty("--weight", row[i] ? row[i].toFixed(3) : 0)
      each.className = ids[i] === model.letters.length ? "mh-unknown" : ""
      each.setAttribute("aria-pressed", i === place_)
      each.tabIndex = i === place_ ? 0 : -1
      const letter = shown(letters[i])
      each.title = loss === null ? letter : filled(words.at, { letter, loss: digits(loss) })
      each.setAttribute("aria-label", each.title)
    })
  }
  const choose = i => { [chosen, key] = [Math.max(0, Math.min(state.letters.length - 1, i)), null]; render(); remember() }
  strip.addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -1000, End: 1000 }[event.key]
    if (!by) return
    event.preventDefault()
    choose((chosen ?? state.letters.length - 1) + by)
    keys[chosen].focus()
  })

  function drawExpected(letter, chances, came) {
    const order = [...chances.keys()].sort((a, b) => chances[b] - chances[a]).slice(0, EXPECTED)
    expected.replaceChildren(
      element("caption", filled(words.next, { letter })),
      element("tbody", order.map(i => element("tr", [
        element("th", shown(model.letters[i]), { scope: "row" }),
        element("td", element("span", "", {}, { style: `width: ${(100 * chances[i]).toFixed(1)}%` })),
        element("td", `${(100 * chances[i]).toFixed(0)} %${model.letters[i] === came ? ` ← ${words.actual}` : ""}`),
      ]))))
  }

  let start = 0  // the first character of the large map
  function drawMap(letters, row, place_) {
    const name = names[head]
    const fit = Math.max(8, Math.min(letters.length, Math.floor((large.clientWidth || 330) / CELL) - 1))
    const middle = chosen ?? letters.length - 1
    start = Math.max(0, Math.min(middle - fit + 1 + Math.floor(fit / 8), letters.length - fit))
    const [seen, count] = [letters.slice(start, start + fit), Math.min(fit, letters.length)]
    large.style.setProperty("--count", count)
    paint(map, getComputedStyle(place).getPropertyValue("--mh-weights"), row, start, count)
    sides.forEach(side => side.replaceChildren(...seen.map((letter, i) =>
      element("span", shown(letter), { className: start + i === place_ ? "mh-now" : "" }))))
    mark.style.top = `${(100 * (place_ - start)) / count}%`
    mark.style.height = `${100 / count}%`
    title.textContent = filled(words.head, { head: name }) + (off.has(name) ? words.off : "")
    const best = [...row[place_].keys()].sort((a, b) => row[place_][b] - row[place_][a]).slice(0, 3)
    const at = pointed?.[1] ?? key
    const seenBy = at !== null && at <= place_ ? [at] : best.filter(j => row[place_][j] >= 0.05)
    const found = seenBy.map(j => filled(j === place_ ? words.takes_itself : words.takes, {
      weight: digits(row[place_][j]), letter: shown(letters[j]), back: place_ - j,
    })).join(punctuation.comma)
    about.textContent += ` · ${filled(words.looks, { head: name, letter: shown(letters[place_]), found })}`
    map.setAttribute("aria-label", filled(words.map, { head: name }))
    partial.textContent = count < letters.length ? filled(words.window, { count }) : ""
  }
  const cellAt = event => {
    const box = map.getBoundingClientRect()
    const count = map.width
    return [event.clientY - box.top, event.clientX - box.left].map(x => start + Math.max(0, Math.min(count - 1, Math.floor((x / box.width) * count))))
  }
  map.addEventListener("pointermove", event => {
    if (event.pointerType !== "mouse") return
    pointed = cellAt(event)
    render()
  })
  map.addEventListener("pointerleave", () => { if (pointed) { pointed = null; render() } })
  map.addEventListener("click", event => { [[chosen, key], pointed] = [cellAt(event), null]; render(); remember() })
  map.addEventListener("keydown", event => {
    const [down, right] = MOVES[event.key] ?? [0, 0]
    if (!down && !right) return
    event.preventDefault()
    const last = state.letters.length - 1
    const row = chosen ?? last
    const column = key ?? row
    chosen = Math.max(0, Math.min(last, row + down))
    key = Math.max(0, Math.min(chosen, column + right))
    pointed = null
    render()
    remember()
  })

  const typed = () => { writing.stop(); chosen = key = null; update() }
  text.addEventListener("input", event => event.isComposing || typed())  // Chinese is typed in several steps
  text.addEventListener("compositionend", typed)
  other.addEventListener("input", event => event.isComposing || update())
  other.addEventListener("compositionend", update)
  slider.addEventListener("input", () => { degrees.textContent = digits(Number(slider.value)) })
  const sow = () => { next = random(Number(seed.value)) }
  seed.addEventListener("input", sow)
  form.addEventListener("change", () => remember())
  form.addEventListener("reset", () => setTimeout(() => {
    writing.stop()
    text.value = model.example
    other.value = ""
    sow()
    ;[head, chosen, key] = [first, opening, null]
    allOn.click()
  }))

  /** What differs from the start, for the address. */
  function remember() {
    const own = text.value !== model.example
    const said = (value, usual) => (String(value) === String(usual) ? null : value)
    keep({
      text: own ? text.value : null, other: other.value || null, head: said(names[head], names[first]), off: off.size ? [...off].sort().join(",") : null,
      at: chosen === null || chosen === (own ? null : opening) ? null : chosen + 1,
      temperature: said(slider.value, slider.defaultValue), seed: said(seed.value, seed.defaultValue),
    })
  }

  function restore() {
    const query = asked()
    const isOurs = written => encode(model, [...written]).filter(id => id < model.letters.length).length > [...written].length / 2
    if (isOurs(query.get("text") ?? "")) {  // else it was typed for the model of the other language
      text.value = query.get("text")
      chosen = null
    }
    if (isOurs(query.get("other") ?? "")) other.value = query.get("other")
    const at = Number(query.get("at")) - 1
    if (text.value && lastOf(model, text.value).letters[at]) chosen = at
    if (names.includes(query.get("head"))) head = names.indexOf(query.get("head"))
    for (const name of (query.get("off") ?? "").split(",").filter(each => names.includes(each))) {
      off.add(name)
      cards[names.indexOf(name)].box.checked = false
    }
    if (query.has("temperature")) slider.value = query.get("temperature")
    if (query.has("seed")) seed.value = query.get("seed")
    sow()
  }
  form.addEventListener("submit", event => event.preventDefault())
  const rows = Array.from({ length: model.layers }, (_, n) => element("div", [
    element("span", filled(words.layer, { number: n + 1 })), ...cards.slice(n * model.heads, (n + 1) * model.heads).map(each => each.card),
  ], { className: "mh-head-row" }))
  place.replaceChildren(
    form, said, strip, about,
    element("div", [
      element("div", [...rows, element("p", words.effect), allOn], { className: "mh-heads" }), expected,
    ], { className: "mh-pair" }),
    title, large, partial, told)
  restore()
  place.model = model  // for whoever looks closer
  update()
  new ResizeObserver(() => state && render()).observe(place)
}

/** A map of weights, a pixel for each cell: queries down, keys across. */
function paint(canvas, color, rows, start, count = rows.length) {
  canvas.width = canvas.height = count
  const context = canvas.getContext("2d")
  context.fillStyle = color
  const [red, green, blue] = [1, 3, 5].map(at => parseInt(context.fillStyle.slice(at, at + 2), 16))
  const picture = context.createImageData(count, count)
  for (let i = 0; i < count; i++) {
    for (let j = 0; j <= i; j++) {
      picture.data.set([red, green, blue, Math.round(255 * rows[start + i][start + j])], 4 * (i * count + j))
    }
  }
  context.putImageData(picture, 0, 0)
}

/** The home page: the model is fetched when the reader asks it to complete a name, with all heads and then without layer 2. */
function showSmall(place) {
  const field = element("input", "", { type: "text", name: "name", value: words.name, maxLength: 12, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const press = element("button", words.play, { type: "submit", className: "md-button" })
  const form = element("form", [element("label", [words.named, field], { className: "mh-wide" }), press])
  const lines = [0, 1].map(() => element("div", "", { className: "mh-letters" }))
  const said = element("p", words.ready, { className: "mh-said" }, { role: "status" })
  place.replaceChildren(form, lines[0], lines[1], said)
  const name = () => [...field.value.trim() || words.name]
  const begun = () => filled(words.begin, { name: name().join(""), start: name().slice(0, words.given).join("") })
  let strange = []  // letters that the model lacks, as soon as it is there
  const kindOf = (letter, isNew) => (isNew ? "mh-new" : strange.includes(letter) ? "mh-unknown" : "")
  const write = (line, letters, from, row = []) => line.replaceChildren(...letters.map((letter, i) => {
    const made = element("span", letter === "\n" ? "↵" : letter, { className: kindOf(letter, i >= from) })
    made.style.setProperty("--weight", (row[i] ?? 0).toFixed(3))
    return made
  }))
  const clear = () => { write(lines[0], [...begun()], Infinity); lines[1].replaceChildren() }
  clear()
  field.addEventListener("input", () => { clear(); said.textContent = words.ready })
  form.addEventListener("submit", async event => {
    event.preventDefault()
    press.disabled = field.disabled = true
    said.textContent = words.loading
    try {
      await complete(await load())
    } catch (error) {
      said.textContent = reason(error)
    }
    press.disabled = field.disabled = false
  })

  async function complete(model) {
    const [layer, head] = model.copier.split(".").map(Number)
    const last = Array.from({ length: model.heads }, (_, h) => `${model.layers}.${h + 1}`)
    const start = begun()
    strange = [...new Set(lastOf(model, start).letters.filter(letter => !model.numbers.has(letter)))]
    const say = found => {
      said.textContent = strange.length ? filled(words.unknown_name, { letters: strange.map(shown).join(" "), said: found }) : found
    }
    write(lines[0], [...start], Infinity)
    if (name().length <= words.given) return say(filled(words.short, { given: words.given, least: words.given + 1 }))
    const made = []
    for (const [i, off] of [new Set(), new Set(last)].entries()) {
      let text = start
      for (let left = name().length - words.given; left; left--) {
        const { logits, weights } = await forwardInTurns(model, encode(model, lastOf(model, text).letters), off)
        text += model.letters[draw(logits.at(-1), 0)]
        write(lines[i], [...text], [...start].length, weights[layer - 1][head - 1].at(-1))
        if (!still()) await new Promise(go => setTimeout(go, PACE))
      }
      made.push([...text].slice([...start].length).join(""))
    }
    say(filled(words.completed, { whole: made[0], without: made[1] }))
  }
}

mount("live-model", place => {
  if (place.dataset.option === "small") return showSmall(place)
  const near = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return
    near.disconnect()
    withModel(place, model => show(place, model))
  }, { rootMargin: "600px" })
  place.replaceChildren(element("p", words.loading))
  near.observe(place)
})
