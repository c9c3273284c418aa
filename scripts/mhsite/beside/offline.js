// In a folder, where no server is: a browser reads no file for a script and starts no worker. Here what would be fetched
// comes as a script that lies in its place, and a frame does a worker's work.

const modules = {}
const arrived = {}  // address of such a script: what it brought, in base64

const assets = document.currentScript.src

/** A module that a script asks for once it needs it. */
const imported = name =>
  new Promise((done, fail) => {
    if (modules[name]) return done(modules[name])
    const script = document.createElement("script")
    script.src = new URL(name, assets)
    script.onload = () => done(modules[name])
    script.onerror = () => fail(new TypeError(`there is no ${name}`))
    document.head.append(script)
  })

/** As the browser's own, for files of this folder. */
self.fetch = address =>
  new Promise((done, fail) => {
    const script = document.createElement("script")
    script.src = `${address}.js`
    script.onload = () => done(new Response(Uint8Array.from(atob(arrived[script.src]), sign => sign.charCodeAt(0))))
    script.onerror = () => fail(new TypeError(`there is no ${address}`))
    document.head.append(script)
  })

if (self === parent)
  self.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      Object.assign(this.frame, { hidden: true, src: address.replace(".js?", ".html?") })
      this.ready = new Promise(done => { this.frame.onload = done })
      addEventListener("message", ({ source, data }) => {
        if (source === this.frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data }))
      })
      document.body.append(this.frame)
    }

    async postMessage(data) {
      await this.ready
      this.frame.contentWindow.postMessage(data, "*")
    }
  }
else {
  const page = parent
  self.postMessage = data => page.postMessage(data, "*")
}
