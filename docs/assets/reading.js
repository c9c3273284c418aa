// The picture of the home page: word after word, what two heads take from the words before. It plays once
// and rests at "they"; what is chosen stays, and a line says its numbers.

import { sentence } from "./arcs.js"
import { asked, element, filled, keep, mount, punctuation } from "./dom.js"
import { attend, heads, words } from "./sentence.js"

const texts = wordsOf("reading")
const THEY = 4
const STEP = 1100  // milliseconds: the whole plays in less than five seconds

mount("reading", place => {
  const results = heads().map(head => attend(head))
  const headName = h => filled(words.head, { head: h + 1 })
  const quoted = word => filled(texts.quoted, { word })
  let timer = null

  /** What each head takes most from, in one line. */
  function told(word) {
    const parts = results.map(({ weights }, h) => {
      const row = weights[word].slice(0, word + 1)
      const most = row.indexOf(Math.max(...row))
      if (word && row[most] - Math.min(...row) < 0.005) return filled(texts.each, { head: headName(h), weight: row[most].toFixed(2) })
      return filled(texts.most, { head: headName(h), weight: row[most].toFixed(2), word: most === word ? texts.itself : quoted(words.words[most]) })
    })
    return quoted(words.words[word]) + punctuation.colon + parts.join(punctuation.semicolon) + texts.end
  }
  const said = element("p", "", {}, { role: "status" })
  const show = word => {
    line.update(word, results)
    said.setAttribute("aria-live", timer ? "off" : "polite")  // only what rests is read out
    said.textContent = told(word)
  }
  const rest = word => { clearInterval(timer); timer = null; show(word) }
  const line = sentence(words.words, word => { rest(word); keep({ word: word === THEY ? null : word + 1 }) })
  const play = () => {
    let word = 0
    clearInterval(timer)
    timer = setInterval(() => (++word < THEY ? show(word) : rest(THEY)), STEP)
    show(word)
  }
  const again = element("button", texts.again, { type: "button", className: "md-button" })
  again.addEventListener("click", () => { keep({ word: null }); play() })
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches
  const names = [0, 1].map(h => element("span", headName(h), { className: `mh-head-${h + 1}` }))
  const picture = document.querySelector("figure svg")
  place.setAttribute("role", "group")
  place.setAttribute("aria-label", picture.getAttribute("aria-label"))
  place.replaceChildren(element("p", texts.choose), names[0], line.place, names[1], said, ...(still ? [] : [again]))
  picture.replaceWith(place)
  const wanted = Number(asked().get("word"))
  if (words.words[wanted - 1]) rest(wanted - 1)
  else if (still) rest(THEY)
  else play()
})
