// The museum's exhibits and its table of the others: what one sees and words that one types choose among them.

import { asked, element, filled, keep, mount, teller } from "./dom.js"

const words = wordsOf("exhibits")

mount("exhibits", place => {
  const rooms = [...document.querySelectorAll(".mh-museum")].map(list => {
    let heading = list
    while (heading.tagName !== "H2") heading = heading.previousElementSibling
    const around = []
    for (let next = heading; next !== list; next = next.nextElementSibling) around.push(next)
    return { id: heading.id, title: heading.firstChild.textContent, parts: [...around, list], exhibits: [...list.children] }
  })
  const bodies = [...document.querySelectorAll(".mh-mistakes tbody")]
  const rows = bodies.flatMap(body => [...body.rows].slice(1))
  const state = { see: asked().get("see"), find: asked().get("find") ?? "" }
  if (!rooms.some(({ id }) => id === state.see)) state.see = null

  const { place: told, tell } = teller()
  const count = element("output")
  const field = element("input", "", { type: "search", autocomplete: "off", spellcheck: false, value: state.find })
  const buttons = new Map([[null, words.all], ...rooms.map(({ id, title }) => [id, title])].map(([id, title]) => {
    const button = element("button", title, { type: "button" })
    button.addEventListener("click", () => { state.see = id; show() })
    return [id, button]
  }))

  function show() {
    const typed = state.find.toLowerCase().split(/\s+/).filter(Boolean)
    const fits = part => typed.every(word => part.textContent.toLowerCase().includes(word))
    for (const { id, parts, exhibits } of rooms) {
      const chosen = state.see === null || state.see === id
      for (const exhibit of exhibits) exhibit.hidden = !chosen || !fits(exhibit)
      for (const part of parts) part.hidden = exhibits.every(exhibit => exhibit.hidden)
    }
    for (const row of rows) row.hidden = !fits(row)
    for (const body of bodies) body.hidden = [...body.rows].slice(1).every(row => row.hidden)
    for (const [id, button] of buttons) button.setAttribute("aria-pressed", id === state.see)
    const shown = rooms.flatMap(({ exhibits }) => exhibits).filter(exhibit => !exhibit.hidden)
    count.textContent = filled(words.count, { exhibits: shown.length, others: rows.filter(row => !row.hidden).length })
    tell(count.textContent)
    keep({ see: state.see, find: state.find.trim() || null })
  }

  /** What the address names is never filtered out. */
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))
    if (!target?.closest("[hidden]")) return
    Object.assign(state, { see: null, find: "" })
    field.value = ""
    show()
    target.scrollIntoView()
  }

  field.addEventListener("input", () => { state.find = field.value; show() })
  const label = element("label", [words.find, " ", element("code", "softmax"), " ", field])
  place.replaceChildren(
    element("p", [...buttons.values()], { className: "mh-sights" }),
    element("p", [label, count], { className: "mh-filter" }), told)
  show()
  reveal()
  addEventListener("hashchange", reveal)
})
