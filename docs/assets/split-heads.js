// How a table of all heads' numbers becomes a sheet for each head, in five frames: as it should, or by view alone,
// which cuts between rows. The numbers are those of the page shapes.md, whose story wrote them into split.json;
// a browser test compares where each number stands with PyTorch.

import { asked, element, filled, keep, mountWithFile, svg, teller } from "./dom.js"

const words = wordsOf("split-heads")
const FILE = new URL("../data/shapes/split.json", import.meta.url)
const [LENGTH, WIDTH, SIZE] = [6, 8, 4]  // words, numbers a word, numbers a head
const [THEY, CATS, MIA] = [4, 1, 3]
const [CELL, HIGH, SQUARE] = [26, 22, 20]
const [LEFT, TOP, GAP] = [52, 66, 16]
const BEHIND = { x: 68, y: -2 * HIGH }
const CODE = [
  ["X @ W_q", "Q.view(6, 2, 4)", ".transpose(0, 1)", "scores.softmax(dim=-1)", "(weights @ v).transpose(0, 1).reshape(6, 8)"],
  ["X @ W_q", "Q.view(2, 6, 4)", "Q.view(2, 6, 4)", "scores.softmax(dim=-1)", "(weights @ v).view(6, 8)"],
]
const SHAPES = [["6, 8", "6, 2, 4", "2, 6, 4", "2, 6, 6", "6, 8"], ["6, 8", "2, 6, 4", "2, 6, 4", "2, 6, 6", "6, 8"]]

/** The head, row and column where number `n` of the table stands once it is split. */
export function place(n, isWrong) {
  const [row, column] = [Math.floor(n / WIDTH), n % WIDTH]
  return isWrong
    ? [Math.floor(n / (LENGTH * SIZE)), Math.floor(n / SIZE) % LENGTH, n % SIZE]
    : [Math.floor(column / SIZE), row, column % SIZE]
}

/** Where a number is drawn in a frame, from 0. */
function point(n, frame, isWrong) {
  const [head, i, j] = place(n, isWrong)
  if (frame === 2 || frame === 3)
    return [LEFT + j * CELL + head * BEHIND.x, TOP + i * HIGH + head * BEHIND.y]
  const gap = frame === 1 ? head * GAP : 0
  const [row, column] = [Math.floor(n / WIDTH), n % WIDTH]
  return [LEFT + column * CELL + (isWrong ? 0 : gap), TOP + row * HIGH + (isWrong ? gap : 0)]
}

const shown = x => (Number.isInteger(x) ? String(x) : x.toFixed(2)).replace("-", "−")
const moved = ([x, y]) => `transform: translate(${x}px, ${y}px)`

function show(here, { Q, A, O }) {
  const query = asked()
  let frame = [1, 2, 3, 4, 5].includes(Number(query.get("frame"))) ? query.get("frame") - 1 : 0
  const numbers = Q.flat().map((_, n) => svg("g", { class: `mh-number mh-head-${n % WIDTH < SIZE ? 1 : 2}` },
    svg("rect", { width: CELL, height: HIGH }), svg("text", { x: CELL / 2, y: 15 })))
  numbers.forEach((each, n) => {
    each.dataset.number = n
    each.classList.toggle("mh-marked", Math.floor(n / WIDTH) === MIA)
  })
  const squares = [0, 1].map(head => A[0][head].map((row, i) => row.map((_, j) => svg("rect", {
    x: LEFT + j * SQUARE + head * (LENGTH * SQUARE + 60), y: TOP + i * SQUARE, width: SQUARE - 1, height: SQUARE - 1, class: `mh-head-${head + 1}` }))))
  const weights = svg("g", { class: "mh-squares-of-heads" }, ...squares.flat(2))
  const labels = [0, 1].map(() => words.words.map(() => svg("text", { class: "mh-label" })))
  const names = [1, 2].map(head => svg("text", { class: `mh-name mh-head-${head}` }, filled(words.head, { head })))
  const picture = svg("svg", { viewBox: "0 0 356 218", role: "img", class: "mh-split" })

  const button = (text, by) => {
    const made = element("button", text, { type: "button", className: "md-button" })
    made.addEventListener("click", () => step(by))
    return made
  }
  const [back, next] = [button(words.back, -1), button(words.next, 1)]
  const wrong = element("input", "", { type: "checkbox", name: "wrong", checked: query.has("wrong") })
  const label = element("label", [wrong, " ", words.alone])
  const count = element("span", "", { className: "mh-count" })
  const line = element("p", "", { className: "mh-code" })
  const said = element("p", "", { className: "mh-said" })
  const { place: told, tell } = teller()

  function step(by) {
    const to = Math.max(0, Math.min(CODE[0].length - 1, frame + by))
    if (to === frame) return
    frame = to
    if (document.activeElement === next && frame === CODE[0].length - 1) back.focus()
    if (document.activeElement === back && frame === 0) next.focus()
    update()
    remember()
  }

  /** The words beside the rows: of both heads' sheets where there are two. */
  function rows(way) {
    const two = frame === 2 || frame === 3
    labels.forEach((side, head) => side.forEach((text, i) => {
      const word = two && way ? head * LENGTH / 2 + Math.floor(i / 2) : i
      const isSquare = frame === 3
      const gap = frame === 1 && way && i >= LENGTH / 2 ? GAP : 0
      const x = !head ? LEFT - 6 : isSquare ? LEFT + 2 * LENGTH * SQUARE + 64 : LEFT + SIZE * CELL + BEHIND.x + 6
      const y = isSquare ? TOP + i * SQUARE + 14 : TOP + i * HIGH + 15 + gap + head * BEHIND.y
      text.textContent = head && !two ? "" : words.words[word]
      text.classList.toggle("mh-marked", word === MIA)
      for (const [name, value] of Object.entries({ x, y, "text-anchor": head ? "start" : "end" })) text.setAttribute(name, value)
    }))
    const middles = [[], way ? [[LEFT + WIDTH * CELL + 6, TOP + 1.5 * HIGH], [LEFT + WIDTH * CELL + 6, TOP + 4.5 * HIGH + GAP]]
      : [[LEFT + 30, TOP - 8], [LEFT + 30 + SIZE * CELL + GAP, TOP - 8]],
    [[LEFT + 30, TOP + LENGTH * HIGH + 14], [LEFT + 30 + BEHIND.x, TOP + BEHIND.y - 8]],
    [[LEFT + 40, TOP - 8], [LEFT + LENGTH * SQUARE + 100, TOP - 8]], []][frame]
    names.forEach((text, head) => {
      text.style.display = middles.length ? "" : "none"
      for (const [i, name] of ["x", "y"].entries()) text.setAttribute(name, middles[head]?.[i] ?? 0)
    })
  }

  function update() {
    const way = Number(wrong.checked)
    const values = (frame === 4 ? O[way] : Q).flat()
    numbers.forEach((each, n) => {
      each.style = moved(point(n, frame, way))
      each.lastChild.textContent = shown(values[n])
    })
    picture.classList.toggle("mh-weights-shown", frame === 3)
    squares.forEach((square, head) => square.forEach((row, i) => row.forEach((rect, j) =>
      rect.style.setProperty("--weight", `${Math.round(100 * A[way][head][i][j])}%`))))
    rows(way)
    back.disabled = frame === 0
    next.disabled = frame === CODE[0].length - 1
    count.textContent = `${frame + 1} / ${CODE[0].length}`
    line.replaceChildren(element("code", CODE[way][frame]), ` (${SHAPES[way][frame]})`)
    said.textContent = filled((way ? words.wrong : words.right)[frame], {
      weight: shown(A[0][0][THEY][CATS]), query: words.words[THEY], key: words.words[CATS], word: words.words[MIA] })
    picture.setAttribute("aria-label", said.textContent)
    tell(`${count.textContent}: ${said.textContent}`)
  }

  /** The second sheet lies behind, so it is drawn first; a marked row lies on its sheet. */
  function order() {
    const height = n => 2 - 2 * place(n, wrong.checked)[0] + Number(Math.floor(n / WIDTH) === MIA)
    const sorted = numbers.map((each, n) => [height(n), each]).sort(([one], [other]) => one - other)
    picture.replaceChildren(...sorted.map(([, each]) => each), weights, ...labels.flat(), ...names)
  }
  const remember = () => keep({ frame: frame ? frame + 1 : null, wrong: wrong.checked ? 1 : null })

  wrong.addEventListener("change", () => { order(); update(); remember() })
  here.addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (!by) return
    event.preventDefault()
    step(by)
  })
  order()
  update()
  here.replaceChildren(picture, line, said,
    element("div", [back, next, count, label], { className: "mh-buttons" }), told)
}

mountWithFile("split-heads", FILE, show)
