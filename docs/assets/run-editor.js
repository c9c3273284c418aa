// A field for code: a plain textarea above the same text in colours, so that keyboards, screen readers and phones find what they know.

import { element } from "./dom.js"

const words = wordsOf("run-editor")
const KEYWORDS = "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield"
const TOKEN = new RegExp(
  String.raw`(?<c>#[^\n]*)|(?<s>[rbfRBF]{0,2}(?:"""[^]*?"""|'''[^]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))` +
  String.raw`|(?<k>\b(?:${KEYWORDS})\b)|(?<m>(?<![\w.])\d[\d_]*\.?\d*(?:e[+-]?\d+)?)|(?<=\b(?:def|class) )(?<nf>\w+)`, "g")

/** The code as elements in the colours of the page. */
function coloured(code) {
  const parts = []
  let end = 0
  for (const match of code.matchAll(TOKEN)) {
    const [look] = Object.entries(match.groups).find(([, text]) => text !== undefined)
    parts.push(code.slice(end, match.index), element("span", match[0], { className: look }))
    end = match.index + match[0].length
  }
  return [...parts, code.slice(end), "\n"]
}

/** An editor with this text; `run` is called on Ctrl+Enter, `changed` whenever the text is another. */
export function editor(text, label, run, changed) {
  const look = element("code", "", {}, { "aria-hidden": true })
  const wrong = element("span", "", { className: "mh-wrong-line", hidden: true }, { "aria-hidden": true })
  const field = element("textarea", "", { value: text, spellcheck: false }, {
    "aria-label": label, "aria-description": words.keys, autocapitalize: "off", autocomplete: "off", autocorrect: "off", rows: 1,
  })
  const place = element("span", [wrong, look, field], { className: "mh-editor" })
  let leaves = false  // after Escape, Tab goes on to what comes next
  const draw = () => look.replaceChildren(...coloured(field.value))
  const insert = more => {
    if (!document.execCommand("insertText", false, more)) field.setRangeText(more, field.selectionStart, field.selectionEnd, "end")
  }
  field.addEventListener("input", () => { draw(); changed() })
  field.addEventListener("keydown", event => {
    if (event.isComposing) return
    const { key, ctrlKey, metaKey, shiftKey } = event
    if (key === "Enter" && (ctrlKey || metaKey)) {
      event.preventDefault()
      run()
    } else if (key === "Tab" && !leaves && !shiftKey) {
      event.preventDefault()
      insert("    ")
    } else if (key === "Enter" && !shiftKey) {
      event.preventDefault()
      const before = field.value.slice(0, field.selectionStart).split("\n").at(-1)
      insert(`\n${before.match(/^ */)[0]}${/:\s*(#.*)?$/.test(before) ? "    " : ""}`)
    }
    leaves = key === "Escape" || (leaves && key === "Shift")
    event.stopPropagation()  // the page's own keys, such as that of the search, are letters here
  })
  draw()
  return {
    place,
    get value() { return field.value.trimEnd() },
    set value(code) { field.value = code; draw() },
    focus: () => field.focus({ preventScroll: false }),
    /** Mark a line, counted from 1, or none. */
    mark(line) {
      wrong.hidden = !line
      field.setAttribute("aria-invalid", Boolean(line))
      if (line) wrong.replaceChildren(...field.value.split("\n").map((each, i) => element(i + 1 === line ? "mark" : "span", `${each}\n`)))
    },
  }
}
