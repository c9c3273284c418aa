// Every cell of the page can be edited and run where it is read, and every task has a field whose answer the page's own test
// judges. Nothing is loaded before the first click. Cells share a state from top to bottom, as in a notebook: whoever runs
// one runs what it needs above it. What a page keeps of a reader stays in this browser.

import { element, filled, punctuation } from "./dom.js"
import { editor } from "./run-editor.js"
import { files } from "./run-files.js"
import { pictures, same, shown } from "./run-output.js"
import { Broken, Python, Stopped } from "./run-python.js"

const words = wordsOf("run")
const LONG = 10  // seconds after which a run says that it takes long
const EVERY = 5  // seconds after which it says more: each line is read out
const MANY = 60  // seconds of a loop for which fewer steps are offered,
const FEW = 30  // as many as these seconds hold
const FONT = "from mhattn.show import use_chinese_font\nuse_chinese_font()\n"  // a browser has the letters
const kept = store("mhattn-answers")
const done = store("mhattn-tasks")
const place = location.pathname.split("/").at(-2)  // as road.js names a page

/** A table in this browser's own memory; none where storage is refused. */
function store(key) {
  const read = () => {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? {}
    } catch {
      return {}
    }
  }
  return {
    get: name => read()[name],
    set: (name, value) => {
      try {
        localStorage.setItem(key, JSON.stringify({ ...read(), [name]: value }))
      } catch {}
    },
  }
}

const button = (text, act, data = {}) => {
  const made = element("button", text, { type: "button" }, data)
  made.addEventListener("click", act)
  return made
}

/** What cells and tasks share: keys, a line that says what goes on, a bar, and a place for what came out. */
class Panel {
  constructor(run, label) {
    this.key = button(label, run, { "aria-keyshortcuts": "Control+Enter" })
    this.halt = button(words.stop, again)
    this.halt.hidden = true
    this.bar = element("progress", "", { hidden: true, max: 1 }, { "aria-label": words.loading })
    this.line = element("span", "", { className: "mh-run-line" }, { role: "status" })
    this.keys = element("p", [this.key, this.halt], { className: "mh-run-keys" })
    this.out = element("div", "", { className: "mh-result" }, { "aria-live": "polite" })
    this.place = element("div", [this.keys, element("p", [this.line, " ", this.bar], { className: "mh-run-said" }), this.out], { className: "mh-panel" })
  }

  say(text) {
    this.line.textContent = text
  }

  busy(yes) {
    this.key.disabled = yes
    this.halt.hidden = !yes
    if (yes) this.out.replaceChildren()
    else this.bar.hidden = true
    this.place.setAttribute("aria-busy", yes)
  }
}

/** End whatever runs, and have Python start anew behind what the reader does next. */
function again() {
  if (!python.worker) return
  python.stop()
  python.start().catch(() => {})
}

/** One run at a time: its panel shows what is loaded and for how long it has run. */
let current = null
const python = new Python(part => {
  if (!current) return
  current.bar.hidden = part === null
  current.bar.value = part ?? 1
  current.say(part === null ? words.starting : filled(words.loads, { size: megabytes() }))
})
const megabytes = () => (files.bytes / 1e6).toFixed(1)

async function alone(panel, act) {
  if (location.protocol === "file:") return panel.say(words.folder)
  if (current) return current === panel || panel.say(words.busy)
  current = panel
  panel.busy(true)
  if (!python.worker) panel.say(filled(words.loads, { size: megabytes() }))
  let timer
  try {
    await python.start()
    const start = performance.now()
    timer = setInterval(() => {
      const seconds = Math.round((performance.now() - start) / 1000)
      if (seconds % EVERY) return
      if (python.steps) panel.say(forecast(python.steps))
      else if (seconds >= LONG) panel.say(filled(words.long, { seconds }))
    }, 1000)
    await act()
  } catch (error) {
    const said = error instanceof Stopped ? words.stopped : error instanceof Broken ? words.broken : words.failed
    panel.say(filled(said, { why: error.message }))
  } finally {
    clearInterval(timer)
    panel.busy(false)
    current = null
  }
}

/** How long a loop still takes, and how many of its steps half a minute holds if all take more than a minute. */
function forecast({ done, count, seconds }) {
  const each = seconds / done
  const said = filled(words.steps, { done, count, seconds: Math.max(1, Math.round((count - done) * each)) })
  const few = Number((FEW / each).toPrecision(1))
  return each * count > MANY && few > 1 ? said + filled(words.fewer, { few, seconds: Math.round(few * each) }) : said
}

/** What Python answered, as elements: its output, its pictures, its error in plain words. */
function results(answer) {
  const { output, error, drawn } = answer
  const parts = shown(output, drawn?.grids)
  if (drawn) parts.push(...pictures(drawn))
  if (error) parts.push(fault(error))
  return parts
}

function fault({ line, type, message, plain }) {
  const where = line ? filled(words.line, { line }) + punctuation.colon : ""
  if (type === "AssertionError" && message) return element("div", element("p", [where, message]), { className: "mh-fault" })
  const said = element("p", [where, element("code", message ? `${type}: ${message}` : type)])
  return element("div", [...(plain ? [element("p", plain)] : []), said], { className: "mh-fault" })
}

/** What the doctor found in the layer that an answer makes, each with the section that explains it. */
function diagnosis({ findings, also, count, failed }) {
  const parts = (findings ?? []).flatMap(({ check, rows, page }) => [
    element("p", element("a", check, { href: new URL(`../${page}`, import.meta.url).href })),
    ...rows.map(([name, text]) => element("p", [element("b", `${name}${punctuation.colon}`), text])),
  ])
  if (also) parts.push(element("p", also))
  const said = failed ? filled(words.unexamined, { why: failed }) : findings.length ? words.sick : filled(words.healthy, { count })
  return element("div", [element("p", said), ...parts], { className: parts.length ? "mh-diagnosis mh-fault" : "mh-diagnosis" })
}

class Cell {
  constructor(pre, index) {
    this.pre = pre
    this.index = index
    this.own = (pre.dataset.copy ?? pre.querySelector("code").textContent).replace(FONT, "").trimEnd()
    this.printed = []
    for (let next = pre.nextElementSibling; next && !next.matches("pre:has(> code)"); next = next.nextElementSibling)
      if (!next.matches(".mh-cell")) this.printed.push(next)
    this.open = button([element("span", words.open)], () => this.edit(), { class: "mh-run", title: words.open })
    pre.append(this.open)
  }

  get code() {
    return this.editor?.value ?? this.own
  }

  get changed() {
    return this.code !== this.own
  }

  edit() {
    if (!this.editor) {
      this.editor = editor(this.own, filled(words.field, { number: this.index + 1 }), () => this.run(), () => this.edited())
      this.panel = new Panel(() => this.run(), words.run)
      this.back = button(words.back, () => this.put_back())
      this.panel.keys.append(this.back, button(words.reset, reset))
      this.label = element("p", words.own, { className: "mh-own", hidden: true })
      this.pre.classList.add("mh-edited")
      this.pre.querySelector("code").hidden = true
      this.pre.append(this.editor.place)
      this.pre.after(this.panel.place, this.label)
      this.edited()
    }
    this.editor.focus()
    this.run()
  }

  edited() {
    this.back.disabled = !this.changed
    this.editor.mark(null)
  }

  put_back() {
    this.editor.value = this.own
    this.clear()
    this.editor.focus()
  }

  clear() {
    this.edited()
    this.panel.say("")
    this.panel.out.replaceChildren()
    this.compare(true)
  }

  /** What the page printed is marked as such beside what came out, where it differs. */
  compare(equal) {
    this.label.hidden = equal || !this.printed.length
    for (const each of this.printed) each.classList.toggle("mh-before", !equal)
  }

  run() {
    return alone(this.panel, async () => {
      const sources = cells.map(cell => cell.code)
      const above = (await python.ask("plan", sources, this.index)).slice(0, -1).map(i => cells[i])
      for (const [i, cell] of above.entries()) {
        this.panel.say(filled(words.above, { number: i + 1, count: above.length }))
        cell.pre.classList.add("mh-running")
        try {
          const answer = await python.ask("run", cell.index, cell.code, cell.own)
          if (cell.editor) cell.show(answer)
          if (answer.error && cell.changed) return this.stopped_by(cell)
        } finally {
          cell.pre.classList.remove("mh-running")
        }
      }
      this.panel.say(words.running)
      const changed = cells.slice(0, this.index).filter(cell => cell.changed)
      this.show(await python.ask("run", this.index, this.code, this.own, changed.map(({ index, own, code }) => [index, own, code])))
    })
  }

  stopped_by(cell) {
    this.panel.say(filled(words.above_failed, { number: cell.index + 1 }))
    this.panel.out.replaceChildren(this.link_to(cell))
  }

  link_to(cell) {
    return element("p", button(words.show_it, () => cell.editor.focus()))
  }

  show(answer) {
    const parts = results(answer)
    const { taken } = answer.error ?? {}
    if (taken !== undefined) parts.push(this.link_to(cells[taken]))
    const text = answer.output.trimEnd()
    const equal = !answer.error && same(text, this.printed)
    this.compare(equal)
    this.editor.mark(answer.error?.line ?? null)
    this.panel.out.replaceChildren(...(equal ? parts.slice(shown(text).length) : parts))
    const said = answer.error ? words.wrong : equal && text ? words.equal : text || answer.drawn ? words.differs : words.silent
    this.panel.say(filled(said, { seconds: answer.seconds.toFixed(1) }))
  }
}

class Task {
  constructor(turn, index) {
    this.name = `${place}/${index + 1}`
    this.stub = turn.dataset.stub
    this.call = turn.dataset.call
    this.turn = turn
    const opens = button(words.answer, () => this.open(), { class: "md-button" })
    const mark = element("span", done.get(this.name) ? words.done : "", { className: "mh-done" })
    this.mark = mark
    turn.replaceChildren(element("p", [opens, " ", mark]))
  }

  open() {
    this.editor = editor(kept.get(this.name) ?? `${this.stub}\n`, words.answer_field, () => this.check(), () => this.edited())
    this.panel = new Panel(() => this.check(), words.check)
    this.doctor = button(words.doctor, () => this.examine())
    this.panel.keys.append(this.doctor, button(words.again, () => {
      this.editor.value = `${this.stub}\n`
      this.edited()
    }), button(words.reset, reset))
    this.doctor.hidden = true
    const title = element("p", [words.answer_title, " ", this.mark], { className: "mh-turn-title" })
    const box = element("pre", this.editor.place, { className: "mh-edited" })
    this.turn.replaceChildren(title, element("section", [box, this.panel.place], { className: "highlight" }))
    this.panel.say(location.protocol === "file:" ? words.folder : filled(words.first, { size: megabytes() }))
    this.editor.focus()
  }

  edited() {
    kept.set(this.name, this.editor.value)
    this.editor.mark(null)
    this.doctor.hidden = true  // it is asked of what the test has judged
  }

  check() {
    return this.below_cells(async () => {
      this.panel.say(words.judging)
      const test = this.call.slice(0, this.call.indexOf("("))
      this.judged(await python.ask("judge", this.editor.value, this.call, [test]))
    })
  }

  /** The diagnosis of the package's doctor, below what the test said. */
  examine() {
    const told = [...this.panel.out.children].filter(each => !each.matches(".mh-diagnosis"))
    return this.below_cells(async () => {
      this.panel.say(words.examining)
      this.panel.out.replaceChildren(...told)
      const answer = await python.ask("examine", this.editor.value, this.call, files.language)
      this.panel.out.append(diagnosis(answer))
      this.panel.say(words.examined)
    })
  }

  /** The cells above the task, its test among them, have run before an answer is judged. */
  below_cells(act) {
    const above = cells.filter(({ pre }) => pre.compareDocumentPosition(this.turn) & Node.DOCUMENT_POSITION_FOLLOWING)
    return alone(this.panel, async () => {
      const sources = [...above.map(cell => cell.code), `${this.editor.value}\n${this.call}`]
      const first = (await python.ask("plan", sources, above.length, false)).slice(0, -1).map(i => cells[i])
      for (const [i, cell] of first.entries()) {
        this.panel.say(filled(words.above, { number: i + 1, count: first.length }))
        const answer = await python.ask("run", cell.index, cell.code, cell.own)
        if (answer.error && cell.changed) return this.panel.say(filled(words.above_failed, { number: cell.index + 1 }))
      }
      await act()
    })
  }

  judged(answer) {
    const { passed, unwritten, error } = answer
    this.doctor.hidden = passed || !("doctor" in this.turn.dataset) || unwritten.length > 0
    this.editor.mark(error?.line ?? null)
    this.turn.classList.toggle("mh-passed", passed)
    this.panel.out.replaceChildren(...results(answer))
    if (unwritten.length) return this.panel.say(filled(words.unwritten, { name: unwritten.join(", ") }))
    if (!passed) return this.panel.say(error.type === "AssertionError" ? words.refused : words.wrong_answer)
    this.panel.say(words.passed)
    this.mark.textContent = words.done
    done.set(this.name, true)
    dispatchEvent(new Event("mhattn-solved"))
  }
}

/** The page's own code and state: whatever was written into its cells is put back. */
function reset() {
  again()
  for (const cell of cells.filter(({ editor }) => editor)) {
    cell.editor.value = cell.own
    cell.clear()
    cell.panel.say(words.was_reset)
  }
}

const cells = [...document.querySelectorAll("article section.highlight > pre:has(> code)")].map((pre, i) => new Cell(pre, i))
document.querySelectorAll(".mh-turn").forEach((turn, i) => new Task(turn, i))
