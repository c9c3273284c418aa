// A map of the second text that is dragged onto one of the first: with a mouse, or by its handle with a finger.

const FAR = 6  // pixels behind which a press is a drag

/**
 * @param handles where a drag may begin.
 * @param moved what follows the hand.
 * @param targets where it may be dropped.
 */
export function draggable(handles, moved, targets, drop) {
  let start = null
  let over = null

  const targetAt = ({ clientX, clientY }) => document.elementsFromPoint(clientX, clientY).map(each => targets.find(target => target.contains(each))).find(Boolean) ?? null
  function mark(target) {
    over?.classList.remove("mh-drop")
    target?.classList.add("mh-drop")
    over = target
  }
  function end() {
    start = null
    mark(null)
    moved.style.transform = ""
    moved.classList.remove("mh-dragged")
  }

  for (const handle of handles) {
    handle.addEventListener("pointerdown", event => {
      if (event.button || !event.isPrimary) return
      start = { x: event.clientX, y: event.clientY, far: false }
    })
    handle.addEventListener("pointermove", event => {
      if (!start) return
      const [x, y] = [event.clientX - start.x, event.clientY - start.y]
      if (!start.far && Math.hypot(x, y) > FAR) {
        start.far = true
        handle.setPointerCapture(event.pointerId)
        moved.classList.add("mh-dragged")
      }
      if (!start.far) return
      moved.style.transform = `translate(${x}px, ${y}px)`
      mark(targetAt(event))
    })
    handle.addEventListener("pointerup", () => {
      const [far, target] = [start?.far, over]
      end()
      if (!far) return
      handle.addEventListener("click", stop, { capture: true, once: true })  // a drag chooses nothing
      setTimeout(() => handle.removeEventListener("click", stop, { capture: true }))
      if (target) drop()
    })
    handle.addEventListener("pointercancel", end)
  }
  const stop = event => event.stopPropagation()
}
