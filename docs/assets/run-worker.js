// Python in a worker of its own, so that no cell can freeze the page. It is told what to load, and then does what it is
// sent: every answer carries the number of its question.

import { quicken } from "./run-kernels.js"

const KEPT = "mhattn-python"
const online = self.fetch.bind(self)
let ask = null

/** A file that the browser keeps under its address, which names its version; `tell` hears what arrives. */
async function taken(address, tell) {
  const store = await self.caches?.open(KEPT).catch(() => null)
  const there = await store?.match(address)
  const answer = there ?? await online(address)
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`)
  const parts = []
  for (const reader = answer.body.getReader(); ;) {
    const { done, value } = await reader.read()
    if (done) break
    parts.push(value)
    tell(value.length)
  }
  const type = address.endsWith(".wasm") ? "application/wasm" : "application/octet-stream"
  const blob = new Blob(parts, { type })
  if (store && !there) await store.put(address, new Response(blob)).catch(() => null)
  return blob
}

async function forget(addresses) {
  const store = await self.caches?.open(KEPT).catch(() => null)
  for (const { url } of (await store?.keys()) ?? []) if (!addresses.includes(url)) await store.delete(url)
}

async function load({ python, modules, language, late }) {
  let bytes = 0
  const addresses = [`${python}pyodide.asm.wasm`, `${python}python_stdlib.zip`, modules]
  const tell = more => self.postMessage({ arrived: (bytes += more) })
  const blobs = await Promise.all(addresses.map(address => taken(address, tell)))
  self.postMessage({ starts: true })
  const here = new Map(addresses.map((address, i) => [address, blobs[i]]))
  self.fetch = (address, options) => {
    const blob = here.get(String(address.url ?? address))
    return blob ? Promise.resolve(new Response(blob, { headers: { "content-type": blob.type } })) : online(address, options)
  }
  const { loadPyodide } = await import(`${python}pyodide.mjs`)
  const pyodide = await loadPyodide({ indexURL: python })
  pyodide.FS.writeFile("/page.tar.bz2", new Uint8Array(await here.get(modules).arrayBuffer()))
  pyodide.globals.set("language", language)
  pyodide.globals.set("tell", (done, count, seconds) => self.postMessage({ steps: { done, count, seconds } }))
  pyodide.runPython(`
import json, sys, tarfile
with tarfile.open("/page.tar.bz2") as archive:
    archive.extractall("/page", filter="data")
sys.path.insert(0, "/page")
import grids
from runner import Session
with open(f"/page/mistakes.{language}.json", encoding="utf-8") as file:
    session = Session(json.load(file), grids, tell)
def answered(name, parts):
    return json.dumps(getattr(session, name)(*json.loads(parts)))
`)
  for (const [name, address] of late) {  // loaded once a cell opens it
    const [, folder, file] = `/page/${name}`.match(/(.*)\/(.*)/)
    pyodide.FS.mkdirTree(folder)
    pyodide.FS.createLazyFile(folder, file, address, true, false)
  }
  quicken(pyodide)
  ask = pyodide.globals.get("answered")
  await forget(addresses)
}

self.addEventListener("message", async ({ data: { number, what, name, parts } }) => {
  try {
    if (what) await load(what)
    self.postMessage({ number, answer: what ? null : JSON.parse(ask(name, JSON.stringify(parts))) })
  } catch (error) {
    self.postMessage({ number, failed: String(error) })
  }
})
