// Search as Material's worker does it, with two differences: the index is fetched when somebody
// searches, in parts, and a query reaches the engine as the words that it consists of.

const COMMANDS = /[\s"'“”‘’`?!,;:^~*+=|&#$%@\\/(){}[\]<>。，、？！：；（）《》]+/u; // to the engine, or no words
const BORDER = /(?<=\p{sc=Han})(?=\w)|(?<=\w)(?=\p{sc=Han})/gu;
// What says nothing of the subject, on a site about attention.
const EMPTY = new Set(
  "a an and are attention be between by can could do does for from have how i if in into is it its me my of on or our should so than that the their them there this to use used using versus vs want was we what when where which who why will with work works would you your".split(" "),
);
const EMPTY_HAN = /为什么|什么|怎么|如何|哪些|哪个|多少|可以|是否|有没有|区别|作用|还是|注意力|[的了吗呢是和与用有要在把被个占]/g;

function plain(query) {
  const typed = query.normalize("NFKC").replace(/[\u2010-\u2015\u2212]/g, "-");
  const telling = words(typed.replace(EMPTY_HAN, " ")).filter(
    word => !EMPTY.has(word.toLowerCase()) && !/^\w$/.test(word),
  );
  return (telling.length ? telling : words(typed)).join(" ");
}

function words(text) {
  const parts = text.replace(BORDER, " ").split(COMMANDS);
  return parts.map(part => part.replace(/^[-._]+|[-._]+$/g, "")).filter(Boolean);
}

let setup, loaded;

async function load() {
  const parts = await Promise.all(
    setup.config.parts.map(part =>
      fetch(new URL(`../../../search/${part}`, location.href)).then(answer => answer.json()),
    ),
  );
  const { postMessage } = self;
  self.postMessage = () => {}; // the page knows already that the worker is ready
  pass({ type: 0, data: { ...setup, docs: parts.flat() } });
  await new Promise(done => setTimeout(done)); // Material's handler goes on in microtasks
  self.postMessage = postMessage;
}

function pass(data) {
  dispatchEvent(new MessageEvent("message", { data }));
}

addEventListener("message", async event => {
  if (!event.isTrusted) return; // passed on, to Material's
  event.stopImmediatePropagation();
  const { type, data } = event.data;
  if (type === 0) {
    setup = data;
    postMessage({ type: 1 });
  } else {
    const query = plain(data);
    if (query) await (loaded ??= load());
    if (loaded) pass({ type, data: query });
    else postMessage({ type: 3, data: { items: [] } }); // the page opens its search
  }
});

importScripts(location.search.slice(1)); // the theme says which
