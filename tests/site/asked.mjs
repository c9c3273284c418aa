// The site's search without a browser: a list of queries as a line of JSON, what is found as a line of JSON.
// Of each query the pages in their order, each with the links that are seen without a click: its own, and its best sections'.
import { readFileSync } from "node:fs"
import { createInterface } from "node:readline"
import { runInThisContext } from "node:vm"

const [script, words, ...parts] = process.argv.slice(2)
globalThis.addEventListener = () => {}
const [Index, learn] = runInThisContext(`${readFileSync(script, "utf-8")}\n;[Index, learn]`)
learn(JSON.parse(words))
const index = new Index(parts.flatMap(part => JSON.parse(readFileSync(part, "utf-8"))))

const seen = found => found.filter(each => !each.location.includes("#") || each.score >= found[0].score)

for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(JSON.parse(line).map(query => index.search(query).map(found => seen(found).map(each => each.location)))))
