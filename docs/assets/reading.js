// The picture of the home page, moving: word after word, what two heads take from the words before.

import { element, mount, wordsOf } from "./dom.js"
import { SENTENCE, attend, heads, sentence } from "./sentence.js"

mount("reading", place => {
  const results = heads().map(head => attend(head))
  const words = wordsOf(SENTENCE)
  let word = 4
  let timer = null
  const stop = () => clearInterval(timer)
  const line = sentence(words, chosen => { stop(); line.update((word = chosen), results) })
  const names = [1, 2].map(h => element("span", words.head(h), { className: `mh-head-${h}` }))
  place.replaceChildren(names[0], line.place, names[1], element("p", words.choose))
  line.update(word, results)
  document.querySelector("figure svg").replaceWith(place)
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return
  timer = setInterval(() => line.update((word = (word + 1) % words.words.length), results), 2400)
  place.addEventListener("pointerenter", stop)
  place.addEventListener("focusin", stop)
})
