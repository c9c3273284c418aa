// What all widgets share.

/** An element with its content, properties and, in `data`, attributes. */
export function element(tag, content = "", properties = {}, data = {}) {
  const made = Object.assign(document.createElement(tag), properties)
  for (const [name, value] of Object.entries(data)) made.setAttribute(name, value)
  made.append(...[content].flat())
  return made
}

/** The words of the page's language. */
export const wordsOf = words => words[document.documentElement.lang] ?? words.en

/** Fill every place that a page has for this widget. */
export const mount = (name, show) =>
  document.querySelectorAll(`[data-widget=${name}]`).forEach(show)

/** A number in two digits, for a reader. */
export const number = x => String(Math.round(x * 100) / 100).replace("-", "−")

const factor = x => (x < 0 ? `(${number(x)})` : number(x))

/** What a query and a key are multiplied to, before it is added up. */
export const products = (query, key) => query.map((q, d) => `${factor(q)}·${factor(key[d])}`).join(" + ")

/** What the arrow keys add to a cell's row and column. */
export const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }
