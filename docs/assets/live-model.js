// The trained model of the page live-model.md on what the reader types: losses, maps of all heads, what comes next.
// The model itself is model.js. With the option small it only writes on and shows one head, on the home page.

import { element, mount, wordsOf } from "./dom.js"
import { draw, encode, forward, losses, mean, random, read, softmax } from "./model.js"

const FILE = new URL("../data/live-model/model.bin", import.meta.url)
const LONGEST = 160  // characters that it writes on
const EXPECTED = 8  // next characters that have a bar
const CELL = 11  // the least width of a map's cell, in pixels, so that its letter can be read
const WORDS = {
  en: {
    loading: "The model loads …", failed: "The model’s weights can’t be loaded: ", again: "Try again",
    text: "Your text", temperature: "temperature", seed: "seed", write: "write on", stop: "stop", reset: "reset", play: "let it write",
    empty: "Type something: the model needs a character to read.",
    loss: (all, now) => now === null ? `Mean loss ${all}` : `Mean loss ${now}; with all heads ${all}`,
    noLoss: "No loss yet: the first character has nothing before it.",
    seen: (seen, all) => `The model sees the last ${seen} of ${all} characters.`,
    unknown: some => `Not in its vocabulary, so it sees a blank instead: ${some}`,
    at: (letter, loss) => `“${letter}”: loss ${loss}`, first: letter => `“${letter}”: the first, no loss`, blank: letter => `“${letter}”: a blank for the model, no loss`,
    looks: (head, letter, found) => `Head ${head} at “${letter}”: ${found}`, off: " (switched off)",
    takes: (weight, letter, back) => `${weight} on “${letter}” (${back ? `${back} back` : "itself"})`,
    next: letter => `After “${letter}”, the model expects`, actual: "what came", heads: "Heads", layer: n => `layer ${n}`,
    head: name => `head ${name}`, show: name => `show head ${name}`, on: name => `head ${name} on`, all: "all on",
    effect: "Below each map: its switch, and by how much the mean loss of your text rises without this head alone.",
    map: head => `Head ${head}: characters that look, from top to bottom; at which, from left to right. Arrow keys move.`,
    marks: name => `Under the letters: where head ${name} looks from the last one.`,
    window: count => `The map shows ${count} characters; it moves with the chosen one.`, comma: ", ",
  },
  zh: {
    loading: "正在加载模型……", failed: "模型的权重无法加载：", again: "重试",
    text: "输入文字", temperature: "温度", seed: "随机种子", write: "续写", stop: "停止", reset: "还原", play: "让它写",
    empty: "请输入文字：模型至少要读到一个字。",
    loss: (all, now) => now === null ? `平均损失 ${all}` : `平均损失 ${now}；所有头都打开时 ${all}`,
    noLoss: "还没有损失：第一个字前面什么也没有。",
    seen: (seen, all) => `模型只看到 ${all} 个字符中的最后 ${seen} 个。`,
    unknown: some => `词表里没有，模型看到的是空白：${some}`,
    at: (letter, loss) => `“${letter}”：损失 ${loss}`, first: letter => `“${letter}”：第一个字，没有损失`, blank: letter => `“${letter}”：对模型是空白，没有损失`,
    looks: (head, letter, found) => `头 ${head} 在“${letter}”处：${found}`, off: "（已关闭）",
    takes: (weight, letter, back) => `“${letter}”${back ? `（往前 ${back} 位）` : "（自身）"} ${weight}`,
    next: letter => `“${letter}”之后，模型预测`, actual: "实际", heads: "注意力头", layer: n => `第 ${n} 层`,
    head: name => `头 ${name}`, show: name => `显示头 ${name}`, on: name => `打开头 ${name}`, all: "全部打开",
    effect: "每张图下面是开关，以及只关掉这个头时，这段文字的平均损失增加多少。",
    map: head => `头 ${head}：从上到下是发出查询的字，从左到右是被看的字。可用方向键移动。`,
    marks: name => `字下面的标记：头 ${name} 从最后一个字看向哪里。`,
    window: count => `图中显示 ${count} 个字符，随选中的字移动。`, comma: "，",
  },
}
const SHOWN = { " ": "␣", "\n": "↵" }
const shown = letter => SHOWN[letter] ?? letter
const LIKE = { "'": "’", ",": "，", ".": "。", "?": "？", "!": "！" }  // what a keyboard has, where the vocabulary has the other
const digits = x => x.toFixed(2).replace("-", "−")
const signed = x => (x >= 0.005 ? "+" : "") + digits(Math.abs(x) < 0.005 ? 0 : x)

let loaded = null

/** The model, fetched once for all widgets of a page. */
export function load() {
  loaded ??= fetch(FILE).then(answer => {
    if (!answer.ok) throw new Error(`${answer.status} ${FILE.pathname}`)
    return answer.arrayBuffer()
  }).then(read)
  loaded.catch(() => { loaded = null })
  return loaded
}

/** What the model reads of a text: its last characters, each as one that the vocabulary has, if there is one like it. */
export function lastOf(model, text) {
  const all = [...text].map(c => (!model.numbers.has(c) && model.numbers.has(LIKE[c]) ? LIKE[c] : c))
  return { letters: all.slice(-model.context), count: all.length }
}

/** One more character, drawn by what the model expects. */
export function following(model, text, off, temperature, next) {
  const { letters } = lastOf(model, text)
  return model.letters[draw(forward(model, encode(model, letters), off).logits.at(-1), temperature, next)]
}

/** Fill a place as soon as the model is there, or say why it isn't. */
async function withModel(place, words, show) {
  place.replaceChildren(element("p", words.loading, {}, { role: "status" }))
  try {
    show(await load())
  } catch (error) {
    const again = element("button", words.again, { type: "button", className: "md-button" })
    again.addEventListener("click", () => withModel(place, words, show))
    place.replaceChildren(element("p", words.failed + error.message, {}, { role: "alert" }), again)
  }
}

const button = (text, press) => {
  const made = element("button", text, { type: "button", className: "md-button" })
  made.addEventListener("click", press)
  return made
}
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches

/** Calls write() again and again, until it says that it is done or somebody stops it. */
function writer(write, update, changed) {
  let timer = null
  const stop = () => { clearInterval(timer); timer = null; changed(false) }
  const start = () => {
    changed(true)
    let left = LONGEST
    const step = () => { write(); if (--left === 0) stop() }
    if (still()) {  // no moving picture: forty characters at once
      for (let i = 0; i < 40; i++) write()
      stop()
      update()
      return
    }
    timer = setInterval(() => { step(); update() }, 90)
  }
  return { stop, toggle: () => (timer ? stop() : start()), isOn: () => timer !== null }
}

function show(place, model) {
  const words = wordsOf(WORDS)
  const names = Array.from({ length: model.layers * model.heads }, (_, i) => `${Math.floor(i / model.heads) + 1}.${(i % model.heads) + 1}`)
  const off = new Set()
  const opening = Math.floor(0.75 * [...model.example].length)  // the character that is chosen at first
  let [head, chosen, key] = [names.indexOf(sharpest(forward(model, encode(model, [...model.example])).weights)), opening, null]  // null: the last
  let state = null
  let next = random(1)

  const text = element("textarea", "", { name: "text", rows: 3, value: model.example, spellcheck: false }, { autocomplete: "off", autocapitalize: "off" })
  const slider = element("input", "", { type: "range", name: "temperature", min: 0, max: 1.5, step: 0.05, defaultValue: 0.7 })
  const degrees = element("output")
  const seed = element("input", "", { type: "number", name: "seed", min: 0, step: 1, defaultValue: 1 })
  const press = button(words.write, () => writing.toggle())
  const writing = writer(
    () => { text.value += following(model, text.value || "\n", off, Number(slider.value), next); chosen = key = null },
    () => { update(); text.scrollTop = text.scrollHeight },
    on => { press.textContent = on ? words.stop : words.write })
  const form = element("form", [
    element("label", [words.text, text], { className: "mh-wide" }),
    element("label", [words.temperature, " ", degrees, slider]), element("label", [words.seed, seed]),
    element("div", [press, element("button", words.reset, { type: "reset", className: "md-button" })], { className: "mh-buttons" }),
  ])
  const said = element("p", "", { className: "mh-said" }, { "aria-live": "polite" })
  const strip = element("div", "", { className: "mh-letters" }, { role: "group", "aria-label": words.text })
  const about = element("p", "", { className: "mh-sum" })
  const expected = element("table", "", { className: "mh-expected" })
  const cards = names.map((name, i) => {
    const canvas = element("canvas")
    const choose = element("button", canvas, { type: "button" }, { "aria-label": words.show(name) })
    choose.addEventListener("click", () => { head = i; render() })
    const box = element("input", "", { type: "checkbox", name: `head-${name}`, checked: true }, { "aria-label": words.on(name) })
    box.addEventListener("change", () => { box.checked ? off.delete(name) : off.add(name); update() })
    const effect = element("output")
    const card = element("div", [choose, element("label", [box, " ", name, " ", effect])], { className: "mh-head-card" })
    return { card, canvas, choose, box, effect }
  })
  const allOn = button(words.all, () => { off.clear(); cards.forEach(card => { card.box.checked = true }); update() })
  const map = element("canvas", "", {}, { tabindex: 0, role: "img" })
  const sides = ["mh-map-top", "mh-map-left"].map(className => element("div", "", { className }, { "aria-hidden": true }))
  const mark = element("div", "", { className: "mh-map-mark" })
  const large = element("div", [sides[0], sides[1], element("div", [map, mark], { className: "mh-map-cells" })], { className: "mh-map" })
  const title = element("p", "", { className: "mh-map-title" })
  const partial = element("p")

  /** Run the model on the text, with all heads and with those that are on. */
  function update() {
    degrees.value = digits(Number(slider.value))
    const { letters, count } = lastOf(model, text.value)
    const ids = encode(model, letters)
    if (letters.length === 0) {
      state = null
      said.textContent = words.empty
      return render()
    }
    const whole = forward(model, ids)
    const now = off.size ? forward(model, ids, off) : whole
    state = { letters, ids, ...now, losses: losses(now.logits, ids), whole: mean(losses(whole.logits, ids)) }
    const unknown = [...new Set(letters.filter((_, i) => ids[i] === model.letters.length))]
    said.textContent = [
      state.whole === null ? words.noLoss : words.loss(digits(state.whole), off.size ? digits(mean(state.losses)) : null),
      count > letters.length ? words.seen(letters.length, count) : "",
      unknown.length ? words.unknown(unknown.map(shown).join(" ")) : "",
    ].filter(Boolean).join(" · ")
    measureEffects()
    render()
  }

  /** The loss without each head alone, one after the other, whenever the page has time for it. */
  let measured = 0
  function measureEffects() {
    const [run, { ids, whole }] = [++measured, state]
    if (writing.isOn()) return
    const step = i => setTimeout(() => {
      if (run !== measured || i === names.length) return
      const without = mean(losses(forward(model, ids, new Set([names[i]])).logits, ids))
      cards[i].effect.value = whole === null ? "" : signed(without - whole)
      step(i + 1)
    }, i ? 0 : 120)
    step(0)
  }

  function render() {
    const there = state !== null
    for (const each of [strip, about, expected, title, large, partial]) each.hidden = !there
    cards.forEach(({ canvas, choose, card, effect }, i) => {
      choose.setAttribute("aria-pressed", i === head)
      card.classList.toggle("mh-off", off.has(names[i]))
      if (there) paint(canvas, state.weights[Math.floor(i / model.heads)][i % model.heads], 0)
      else effect.value = ""
    })
    if (!there) return
    const { letters, ids, weights, logits } = state
    const place_ = chosen ?? letters.length - 1
    const row = weights[Math.floor(head / model.heads)][head % model.heads]
    drawStrip(letters, ids, place_, row[place_])
    const loss = state.losses[place_]
    const letter = shown(letters[place_])
    about.textContent = loss !== null ? words.at(letter, digits(loss)) : ids[place_] === model.letters.length ? words.blank(letter) : words.first(letter)
    drawExpected(letter, softmax(logits[place_]), letters[place_ + 1])
    drawMap(letters, row, place_)
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
      each.title = loss === null ? letter : words.at(letter, digits(loss))
      each.setAttribute("aria-label", each.title)
    })
  }
  const choose = i => { [chosen, key] = [Math.max(0, Math.min(state.letters.length - 1, i)), null]; render() }
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
      element("caption", words.next(letter)),
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
    start = Math.max(0, Math.min(place_ - fit + 1 + Math.floor(fit / 8), letters.length - fit))
    const [seen, count] = [letters.slice(start, start + fit), Math.min(fit, letters.length)]
    large.style.setProperty("--count", count)
    paint(map, row, start, count)
    sides.forEach(side => side.replaceChildren(...seen.map((letter, i) =>
      element("span", shown(letter), { className: start + i === place_ ? "mh-now" : "" }))))
    mark.style.top = `${(100 * (place_ - start)) / count}%`
    mark.style.height = `${100 / count}%`
    title.textContent = words.head(name) + (off.has(name) ? words.off : "")
    const best = [...row[place_].keys()].sort((a, b) => row[place_][b] - row[place_][a]).slice(0, 3)
    const told = key !== null && key <= place_ ? [key] : best.filter(j => row[place_][j] >= 0.05)
    const found = told.map(j => words.takes(digits(row[place_][j]), shown(letters[j]), place_ - j)).join(words.comma)
    about.textContent += ` · ${words.looks(name, shown(letters[place_]), found)}`
    map.setAttribute("aria-label", words.map(name))
    partial.textContent = count < letters.length ? words.window(count) : ""
  }
  const cellAt = event => {
    const box = map.getBoundingClientRect()
    const count = map.width
    return [event.clientY - box.top, event.clientX - box.left].map(x => start + Math.max(0, Math.min(count - 1, Math.floor((x / box.width) * count))))
  }
  const pointAt = event => { [chosen, key] = cellAt(event); render() }
  map.addEventListener("pointermove", event => event.pointerType === "mouse" && pointAt(event))
  map.addEventListener("click", pointAt)
  map.addEventListener("keydown", event => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0]
    if (!down && !right) return
    event.preventDefault()
    const last = state.letters.length - 1
    const row = chosen ?? last
    const column = key ?? row
    chosen = Math.max(0, Math.min(last, row + down))
    key = Math.max(0, Math.min(chosen, column + right))
    render()
  })

  const typed = () => { writing.stop(); chosen = key = null; update() }
  text.addEventListener("input", event => event.isComposing || typed())  // Chinese is typed in several steps
  text.addEventListener("compositionend", typed)
  slider.addEventListener("input", () => { degrees.value = digits(Number(slider.value)) })
  seed.addEventListener("input", () => { next = random(Number(seed.value)) })
  form.addEventListener("reset", () => setTimeout(() => {
    writing.stop()
    text.value = model.example
    next = random(1)
    allOn.click()
    typed()
    choose(opening)
  }))
  form.addEventListener("submit", event => event.preventDefault())
  const rows = Array.from({ length: model.layers }, (_, n) => element("div", [
    element("span", words.layer(n + 1)), ...cards.slice(n * model.heads, (n + 1) * model.heads).map(each => each.card),
  ], { className: "mh-head-row" }))
  place.replaceChildren(
    form, said, strip, about,
    element("div", [
      element("div", [...rows, element("p", words.effect), allOn], { className: "mh-heads" }), expected,
    ], { className: "mh-pair" }),
    title, large, partial)
  place.model = model  // for whoever looks closer
  update()
  new ResizeObserver(() => state && render()).observe(place)
}

/** A map of weights, a pixel for each cell: queries down, keys across. */
function paint(canvas, rows, start, count = rows.length) {
  canvas.width = canvas.height = count  // which also clears it
  const context = canvas.getContext("2d")
  context.fillStyle = getComputedStyle(canvas).getPropertyValue("--mh-weights")
  for (let i = 0; i < count; i++) {
    for (let j = 0; j <= i; j++) {
      context.globalAlpha = rows[start + i][start + j]
      context.fillRect(j, i, 1, 1)
    }
  }
}

/** The home page: the model is fetched when the reader wants it to write; it marks where its sharpest head looks from the last letter. */
function showSmall(place) {
  const words = wordsOf(WORDS)
  const line = element("div", "", { className: "mh-letters" })
  const said = element("p", "", { className: "mh-said" }, { role: "status" })
  const press = button(words.play, () => writing ? writing.toggle() : begin())
  const next = random(Date.now())
  let writing = null
  place.replaceChildren(line, said, press)

  async function begin() {
    press.disabled = true
    said.textContent = words.loading
    try {
      start(await load())
    } catch (error) {
      said.textContent = words.failed + error.message
    }
    press.disabled = false
  }
  function start(model) {
    const name = sharpest(forward(model, encode(model, [...model.example])).weights)
    const [layer, head] = name.split(".").map(Number)
    let text = model.example
    said.textContent = words.marks(name)
    const update = () => {
      const { letters } = lastOf(model, text)
      const row = forward(model, encode(model, letters)).weights[layer - 1][head - 1].at(-1)
      line.replaceChildren(...letters.map((letter, i) => {
        const made = element("span", letter === "\n" ? "↵" : letter)
        made.style.setProperty("--weight", row[i].toFixed(3))
        return made
      }))
    }
    writing = writer(() => { text += following(model, text, new Set(), 0.7, next) }, update,
      on => { press.textContent = on ? words.stop : words.play })
    update()
    writing.toggle()
  }
}

/** The name of the head whose largest weights are the largest. */
function sharpest(weights) {
  const heads = weights.flatMap((layer, n) => layer.map((rows, h) => ({ name: `${n + 1}.${h + 1}`, peak: mean(rows.map(row => Math.max(...row))) })))
  return heads.reduce((a, b) => (b.peak > a.peak ? b : a)).name
}

mount("live-model", place => {
  if (place.dataset.option === "small") return showSmall(place)
  const words = wordsOf(WORDS)
  const near = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return
    near.disconnect()
    withModel(place, words, model => show(place, model))
  }, { rootMargin: "600px" })
  place.replaceChildren(element("p", words.loading))
  near.observe(place)
})
