// What the parts of cut-heads.js share: buttons, and long works, of which one at a time goes on.

import { element } from "./dom.js"

const words = wordsOf("cut-heads-work")
export const stopWord = words.stop

export const button = (text, press, type = "button") => {
  const made = element("button", text, { type, className: "md-button" })
  if (press) made.addEventListener("click", press)
  return made
}

let running = null

/** Whatever goes on ends after its present step. */
export function stopWork() {
  if (running) running.wanted = false
  running = null
}

/** A long work in steps; the same key stops it, and so does another work. `steps` is told how to ask whether it is still wanted. */
export async function work(key, label, steps) {
  if (running?.key === key) return stopWork()
  stopWork()
  const mine = (running = { key, wanted: true })
  key.textContent = words.stop
  try {
    return await steps(() => mine.wanted)
  } finally {
    if (running === mine) running = null
    if (running?.key !== key) key.textContent = label()
  }
}

/** Seconds that are left of a work, of which so many steps are done. */
export const left = (began, done, all) => Math.ceil((performance.now() - began) / done * (all - done) / 1000)
