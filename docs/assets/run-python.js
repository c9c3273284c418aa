// A worker with Python in it, as an object whose functions are answered later; it can be stopped at any time.

import { files } from "./run-files.js"

const here = new URL(".", import.meta.url)
const whole = name => new URL(name, here).href

export class Python {
  worker = null
  runs = false
  steps = null  // how far the loop is that runs: how many are done, of how many, in how many seconds
  number = 0
  waiting = new Map()

  /** What has arrived of all that is loaded, from 0 to 1; null once it starts. */
  constructor(loading) {
    this.loading = loading
  }

  /** Load Python, if it isn't there. */
  async start() {
    if (this.worker) return this.ready
    this.worker = new Worker(whole("run-worker.js"), { type: "module" })
    this.worker.addEventListener("message", ({ data }) => this.hear(data))
    this.worker.addEventListener("error", ({ message }) => this.hear({ failed: message ?? "run-worker.js" }))
    const late = Object.entries(files.late).map(([name, address]) => [name, whole(address)])
    const what = { python: whole(files.python), modules: whole(files.modules), language: files.language, late }
    this.ready = this.post({ what })
    this.ready.then(() => { this.runs = true }, () => this.stop())
    return this.ready
  }

  /** What the session's function of this name answers. */
  async ask(name, ...parts) {
    await this.start()
    return this.post({ name, parts })
  }

  /** End whatever runs, and forget all that has run. */
  stop() {
    this.end(new Stopped())
  }

  post(message) {
    const number = ++this.number
    this.steps = null
    this.worker.postMessage({ number, ...message })
    return new Promise((done, fail) => this.waiting.set(number, { done, fail }))
  }

  hear({ number, answer, failed, arrived, starts, steps }) {
    if (steps) return void (this.steps = steps)
    if (arrived) return this.loading(arrived / files.whole)
    if (starts) return this.loading(null)
    if (failed) return this.end(new (this.runs ? Broken : Error)(failed))  // it doesn't live on; the next click starts another
    const { done } = this.waiting.get(number) ?? {}
    this.waiting.delete(number)
    done?.(answer)
  }

  end(error) {
    this.worker?.terminate()
    this.worker = null
    this.runs = false
    for (const { fail } of this.waiting.values()) fail(error)
    this.waiting.clear()
  }
}

export class Stopped extends Error {}

/** Python itself broke off, after it was loaded. */
export class Broken extends Error {}
