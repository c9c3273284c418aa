// What all widgets share.

/** An element with its content, properties and, in `data`, attributes. */
export function element(tag, content = "", properties = {}, data = {}) {
  const made = Object.assign(document.createElement(tag), properties)
  for (const [name, value] of Object.entries(data)) made.setAttribute(name, value)
  made.append(...[content].flat())
  return made
}

/** The same for an element of a picture. */
export function svg(tag, attributes, ...content) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...content)
  return made
}

// The build writes what docs/data/words.toml says in the page's language in the place of each wordsOf("table").
export const punctuation = wordsOf("punctuation")
const fileWords = wordsOf("file")

/** A text with what its curly brackets name. */
export const filled = (text, parts) => text.replace(/\{(\w+)\}/g, (_, name) => parts[name])

/** Fill every place that a page has for this widget. */
export const mount = (name, show) =>
  document.querySelectorAll(`[data-widget=${name}]`).forEach(show)

/** The same for a widget that reads a file: until it has come, and where it doesn't come, a line says so. */
export const mountWithFile = (name, file, show) => mount(name, async place => {
  place.replaceChildren(element("p", fileWords.loading))
  try {
    const answer = await fetch(file)
    if (!answer.ok) throw new TypeError(`${file}: ${answer.status}`)
    show(place, await answer.json())
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof SyntaxError)) throw error
    place.replaceChildren(element("p", fileWords.missing, {}, { role: "alert" }))
  }
})

/** What the address says behind its question mark. */
export const asked = () => new URLSearchParams(location.search)

/** Keep a state in the address, beside what other widgets of the page keep there; null keeps nothing. */
export function keep(state) {
  const query = asked()
  for (const [name, value] of Object.entries(state)) value === null ? query.delete(name) : query.set(name, value)
  history.replaceState(history.state, "", location.pathname + (query.size ? `?${query}` : "") + location.hash)
}

// The link to the other language leads to the same place and state.
for (const type of ["click", "auxclick", "contextmenu"])
  document.addEventListener(type, ({ target }) => {
    const link = target.closest?.("a.mh-language")
    if (link) Object.assign(link, { search: location.search, hash: location.hash })
  }, true)

/** A hidden line for a screen reader: what was told last, once the reader has paused. What is there at first isn't read out. */
export function teller() {
  const place = element("p", "", { className: "mh-told" }, { role: "status" })
  let [said, timer] = [null, null]
  const tell = text => {
    clearTimeout(timer)
    said ??= text
    timer = setTimeout(() => { if (text !== said) place.textContent = said = text }, 600)
  }
  return { place, tell }
}

/** The number in a field, or what stood there last, while it is empty. */
export const numberIn = (field, last) => (field.value.trim() === "" ? last : Number(field.value))

/** A number with two digits behind the point, as in tables. */
export const two = x => x.toFixed(2).replace("-", "−")

/** A number in two digits, for a reader. */
export const number = x => String(Math.round(x * 100) / 100).replace("-", "−")

const factor = x => (x < 0 ? `(${number(x)})` : number(x))

/** What a query and a key are multiplied to, before it is added up. */
export const products = (query, key) => query.map((q, d) => `${factor(q)}·${factor(key[d])}`).join(" + ")

/** What the arrow keys add to a cell's row and column. */
export const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }
