// Below each figure stands what saves it, as SVG or as PNG. The script that makes these files comes at the first click.

const words = wordsOf("figures")

document.querySelectorAll("svg.mh-figure").forEach(svg => {
  const place = document.createElement("span")
  place.className = "mh-save"
  place.append(words.save)
  for (const type of ["SVG", "PNG"]) {
    const button = document.createElement("button")
    Object.assign(button, { type: "button", textContent: type, title: words.as.replace("{type}", type) })
    button.setAttribute("aria-label", button.title)
    button.addEventListener("click", async () => (await import("./save-figure.js")).save(svg, type))
    place.append(button)
  }
  (svg.closest("figure") ?? svg.parentElement).append(place)
})
