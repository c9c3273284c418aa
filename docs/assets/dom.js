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
