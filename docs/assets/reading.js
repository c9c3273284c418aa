// The picture of the home page: word after word, what two heads take from the words before. It plays once
// and rests at "they"; what is chosen stays, and a line says its numbers.

import { asked, element, keep, mount, wordsOf } from "./dom.js"
import { SENTENCE, attend, heads, sentence } from "./sentence.js"

const WORDS = {
  en: {
    again: "play again", quoted: "*", colon: ": ", semicolon: "; ", stop: "",
    choose: "Choose a word:", itself: "itself",
    most: (head, weight, word) => `${head} puts ${weight} of its weight on ${word}`,
    each: (head, weight) => `${head} puts ${weight} on each word so far`,
  },
  zh: {
    again: "再放一遍", quoted: "“*”", colon: "：", semicolon: "；", stop: "。",
    choose: "点一个词看看：", itself: "自己",
    most: (head, weight, word) => `${head} 对${word}的权重是 ${weight}`,
    each: (head, weight) => `${head} 对到此为止的每个词的权重都是 ${weight}`,
  },
}
const THEY = 4
const STEP = 1100  // milliseconds: the whole plays in less than five seconds

mount("reading", place => {
  const results = heads().map(head => attend(head))
  const [words, texts] = [wordsOf(SENTENCE), wordsOf(WORDS)]
  const quoted = word => texts.quoted.replace("*", word)
  let timer = null

  /** What each head takes most from, in one line. */
  function told(word) {
    const parts = results.map(({ weights }, h) => {
      const row = weights[word].slice(0, word + 1)
      const most = row.indexOf(Math.max(...row))
      if (word && row[most] - Math.min(...row) < 0.005) return texts.each(words.head(h + 1), row[most].toFixed(2))
      return texts.most(words.head(h + 1), row[most].toFixed(2), most === word ? texts.itself : quoted(words.words[most]))
    })
    return quoted(words.words[word]) + texts.colon + parts.join(texts.semicolon) + texts.stop
  }
  const said = element("p", "", {}, { role: "status" })
  const show = word => {
    line.update(word, results)
    said.setAttribute("aria-live", timer ? "off" : "polite")  // only what rests is read out
    said.textContent = told(word)
  }
  const rest = word => { clearInterval(timer); timer = null; show(word) }
  const line = sentence(words, word => { rest(word); keep({ word: word === THEY ? null : word + 1 }) })
  const play = () => {
    let word = 0
    clearInterval(timer)
    timer = setInterval(() => (++word < THEY ? show(word) : rest(THEY)), STEP)
    show(word)
  }
  const again = element("button", texts.again, { type: "button", className: "md-button" })
  again.addEventListener("click", () => { keep({ word: null }); play() })
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches
  const names = [1, 2].map(h => element("span", words.head(h), { className: `mh-head-${h}` }))
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
