// Beside Material's search field, before Material: the index loads when the field gets the focus, what comes
// without a key (a paste, a candidate, dictation) is searched for, and half-composed signs are not.

{
  const [WARM, BUSY, FAILED] = [4, 5, 6] // messages of docs/assets/search.js
  const words = wordsOf("search-field")
  const states = { [BUSY]: words.loading, [FAILED]: words.failed }
  const field = document.querySelector("[data-md-component=search-query]")
  const said = document.querySelector(".md-search-result__meta")
  said.setAttribute("role", "status")

  const connect = worker => {
    const warm = () => worker.postMessage({ type: WARM })
    field.addEventListener("focus", warm)
    if (document.activeElement === field) warm()
    worker.addEventListener("message", ({ data: { type } }) => {
      if (states[type]) said.textContent = states[type]
    })
  }
  window.Worker = class extends Worker {
    constructor(address, ...options) {
      super(address, ...options)
      if (`${address}`.includes("/workers/search")) connect(this)
    }
  }

  let composing = false
  const typed = () => field.dispatchEvent(new Event("keyup")) // which Material listens to
  field.addEventListener("keyup", event => {
    if (composing || event.isComposing) event.stopImmediatePropagation()
  })
  field.addEventListener("compositionstart", () => { composing = true })
  field.addEventListener("compositionend", () => { composing = false; typed() })
  field.addEventListener("input", event => { if (!event.isComposing) typed() })
}
