// Reads one JSON request a line, {tex, display}, and answers with one JSON line, {html} or {error}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const katex = createRequire(import.meta.url)("./katex.min.js");

// The colours of query, key, value, weights and output: \query{Q} is Q in the query's colour.
const roles = ["query", "key", "value", "weights", "output"];
const macros = Object.fromEntries(roles.map((role) => [`\\${role}`, `\\htmlClass{mh-${role}}{#1}`]));
const trust = ({ command }) => command === "\\htmlClass";
const strict = (code) => (code === "htmlExtension" ? "ignore" : "error");

for await (const line of createInterface({ input: process.stdin })) {
  const { tex, display } = JSON.parse(line);
  let answer;
  try {
    const html = katex.renderToString(tex, { displayMode: display, macros: { ...macros }, trust, strict });
    answer = { html };
  } catch (error) {
    answer = { error: error.message };
  }
  console.log(JSON.stringify(answer));
}
