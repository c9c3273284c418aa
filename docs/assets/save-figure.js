// A figure of the page as a file that stands alone: on white, in its light colours, as large as its letters ask for, with a line
// that says where it is from. It is that figure which is seen: on a phone its letters are larger.

const words = wordsOf("save-figure")
const INK = "#1f1f1f"
const [MARGIN, SMALL, LINE] = [10, 11, 16]  // pixels, as are the figure's width and height
const FOLLOWING = Node.DOCUMENT_POSITION_FOLLOWING

/** Save a figure of the page. */
export async function save(svg, type) {
  const { name, address } = origin(svg)
  const made = standalone(svg, [document.querySelector("meta[property='og:title']").content, `${address} · ${words.licence}`])
  const text = new XMLSerializer().serializeToString(made)
  const file = type === "SVG" ? new Blob([text], { type: "image/svg+xml" }) : await drawn(made, text)
  const link = document.createElement("a")
  Object.assign(link, { href: URL.createObjectURL(file), download: `${name}.${type.toLowerCase()}` })
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}

/** The section's address, and a file's name: the page, its section, and the figure's number there if it isn't the first. */
function origin(svg) {
  const page = document.querySelector("link[rel=canonical]").href
  const before = (one, other) => one.compareDocumentPosition(other) & FOLLOWING
  const heading = [...document.querySelectorAll("article :is(h1, h2, h3)[id]")].findLast(each => before(each, svg))
  const mates = [...document.querySelectorAll("svg.mh-figure")].filter(each => before(heading, each) && before(each, svg))
  const section = heading.matches("h1") ? "" : heading.id
  const parts = [page.split("/").at(-2), section, mates.length && mates.length + 1]
  return { address: section ? `${page}#${section}` : page, name: parts.filter(Boolean).join("-") }
}

const create = (tag, attributes, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.textContent = text
  return made
}

/** The figure with these lines below it. Beside the body, because a rule for a dark body would hold within it. */
function standalone(svg, lines) {
  const host = document.documentElement.appendChild(document.createElement("div"))
  host.dataset.mdColorScheme = "default"
  host.style.cssText = `position: fixed; left: -9999px; width: 2000px; font-family: var(--md-text-font)`
  const copy = host.appendChild(svg.cloneNode(true))
  copy.style.color = INK
  const fonts = getComputedStyle(copy).fontFamily.replace(/"?mh-quotes"?, /, "")  // which only this page knows
  const size = parseFloat(getComputedStyle(copy).fontSize)
  copy.querySelectorAll(".mh-band").forEach(band => band.remove())  // where a reader points
  for (const part of [...copy.querySelectorAll("*")].reverse()) plain(part)  // what is inherited changes last
  plain(copy)

  const [, , across, down] = copy.getAttribute("viewBox").split(" ").map(Number)
  const width = Number(copy.getAttribute("width"))
  const height = width * down / across
  for (const name of ["role", "style", "xmlns", "version"]) copy.removeAttribute(name)
  const root = host.appendChild(create("svg", { "font-family": fonts, role: "img", "aria-label": copy.getAttribute("aria-label") }))
  copy.removeAttribute("aria-label")
  for (const [name, value] of Object.entries({ x: MARGIN, y: MARGIN, height, "font-size": size, fill: INK, "font-family": fonts }))
    copy.setAttribute(name, value)
  const texts = lines.map((line, place) => root.appendChild(create("text", {
    x: MARGIN, y: 2 * MARGIN + height + SMALL + place * LINE, "font-size": SMALL, fill: "#5f6368",
  }, line)))
  const whole = Math.ceil(Math.max(width, ...texts.map(text => text.getComputedTextLength())) + 2 * MARGIN)
  const high = Math.ceil(height + 3 * MARGIN + lines.length * LINE)
  copy.setAttribute("x", (whole - width) / 2)
  for (const [name, value] of Object.entries({ width: whole, height: high, viewBox: `0 0 ${whole} ${high}` })) root.setAttribute(name, value)
  root.prepend(create("rect", { width: whole, height: high, fill: "#fff" }), copy)
  host.remove()
  return root
}

/** An element of a figure in the colours that it has here, without what only a page needs. */
function plain(part) {
  const seen = getComputedStyle(part)
  for (const name of ["fill", "stroke"]) {
    const own = part.style[name] || part.getAttribute(name) || ""
    if (/var\(|currentcolor/i.test(own) || (name === "fill" && part.matches("text"))) part.style[name] = seen[name]
  }
  for (const name of part.getAttributeNames()) if (/^(class$|tabindex$|data-)/.test(name)) part.removeAttribute(name)
}

/** The picture in twice as many dots. */
async function drawn({ width, height }, text) {
  const picture = new Image()
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`
  await picture.decode()
  const canvas = document.createElement("canvas")
  Object.assign(canvas, { width: 2 * width.baseVal.value, height: 2 * height.baseVal.value })
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height)
  return new Promise(done => canvas.toBlob(done))
}
