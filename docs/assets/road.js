// Which pages of the road were read to their end, and which tasks solved: kept in this browser alone, for both languages.

import { element, filled } from "./dom.js"

const KEY = "mhattn-read"
const SOLVED = "mhattn-tasks"  // which run.js keeps
const words = wordsOf("road")
const name = path => path.split("/").at(-2)

function kept() {
  try {
    return new Set(JSON.parse(localStorage.getItem(KEY)))
  } catch {  // storage is refused, or holds something else
    return new Set()
  }
}

/** Of each page how many of its tasks were solved. */
function solved() {
  const done = new Map()
  try {
    for (const task of Object.keys(JSON.parse(localStorage.getItem(SOLVED)) ?? {})) {
      const page = task.split("/")[0]
      done.set(page, (done.get(page) ?? 0) + 1)
    }
  } catch {}
  return done
}

function tick() {
  const read = kept()
  const done = solved()
  for (const link of document.querySelectorAll(".mh-cards a[data-tasks]:not(.mh-counted)"))
    if (done.has(name(link.pathname))) {
      const { tasks } = link.dataset
      link.classList.add("mh-counted")
      const told = element("b", filled(words.counted, { done: done.get(name(link.pathname)), tasks }))
      link.parentElement.querySelector("small").append(" · ", told)
    }
  for (const link of document.querySelectorAll(".mh-road a:not(.mh-solved), ol.mh-cards a:not(.mh-solved)"))
    if (done.has(name(link.pathname))) {
      link.classList.add("mh-solved")
      link.append(element("span", words.solved, { className: "mh-told" }))
    }
  for (const link of document.querySelectorAll(".mh-road a:not(.mh-read), ol.mh-cards a:not(.mh-read)"))
    if (read.has(name(link.pathname))) {
      link.classList.add("mh-read")
      link.append(element("span", words.read, { className: "mh-told" }))
    }
}

tick()
addEventListener("mhattn-solved", tick)
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
