// Which pages of the road were read to their end: kept in this browser alone, for both languages.

import { element } from "./dom.js"

const KEY = "mhattn-read"
const words = wordsOf("road")
const name = path => path.split("/").at(-2)

function kept() {
  try {
    return new Set(JSON.parse(localStorage.getItem(KEY)))
  } catch {  // storage is refused, or holds something else
    return new Set()
  }
}

function tick() {
  const read = kept()
  for (const link of document.querySelectorAll(".mh-road a:not(.mh-read), ol.mh-cards a:not(.mh-read)"))
    if (read.has(name(link.pathname))) {
      link.classList.add("mh-read")
      link.append(element("span", words.read, { className: "mh-told" }))
    }
}

tick()
const end = document.querySelector(".mh-road") && document.getElementById("now")
if (end)
  new IntersectionObserver(([entry], observer) => {
    if (!entry.isIntersecting) return
    observer.disconnect()
    try {
      localStorage.setItem(KEY, JSON.stringify([...kept().add(name(location.pathname))]))
    } catch {}
    tick()
  }).observe(end)
