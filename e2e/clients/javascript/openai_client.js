// Goes through what the published OpenAI client does with an endpoint, and
// prints what it sees, in the words that openai_client.py uses too.

import OpenAI from "openai";

const { API_KEY, BASE_URL, WORKED, LIMITED } = process.env;
const at = (endpoint, apiKey = API_KEY) => new OpenAI({ baseURL: `${BASE_URL}/${endpoint}/openai/v1`, apiKey, maxRetries: 0 });
const client = at(WORKED); // has a worker, the parrot

const show = (step, ...seen) => console.log(step, ...seen.map((s) => JSON.stringify(s)));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// told is how the call fails.
async function told(call) {
  try {
    return [`no error: ${JSON.stringify(await call())}`];
  } catch (err) {
    const { message, type, code } = err.error ?? {};
    return [err.constructor.name, err.status, message, type, String(code)];
  }
}

const said = (text, model = "parrot") => ({ model, messages: [{ role: "user", content: text }] });
const chat = (text, to = client, model) => to.chat.completions.create(said(text, model));
const streamed = (text, to = client, model) => to.chat.completions.create({ ...said(text, model), stream: true });
const whole = (c) => [c.object, c.model, c.choices[0].message.content, c.choices[0].finish_reason, c.usage.total_tokens];

async function collect(stream, part) {
  const all = [];
  for await (const event of await stream) all.push(part(event.choices[0]));
  return all;
}

const parts = (stream) => collect(stream, (c) => [c.delta.content, c.finish_reason]);
const text = async (stream) => (await collect(stream, (c) => c.delta.content)).join("");

// The good paths.
show("models", (await client.models.list()).data.map((m) => m.id));
const { data, response } = await chat("a b").withResponse();
show("chat", whole(data), data.id === `cmpl-${response.headers.get("x-job-id")}`);
show("chat, unicode", whole(await chat("héllo ✓ 🦜")));
show("chat, streamed", await parts(streamed("one two three héllo ✓ 🦜")));
const long = "word ".repeat(499) + "word";
show("chat, streamed, long", (await text(streamed(long))) === long);
show("chat, 900 KB and back", (await chat("x".repeat(900_000))).choices[0].message.content.length);
const completion = await client.completions.create({ model: "parrot", prompt: "once upon" });
show("completion", [completion.object, completion.choices[0].text]);
show("completion, streamed", await collect(client.completions.create({ model: "parrot", prompt: "once upon", stream: true }), (c) => c.text));
const vectors = async (input, more) => (await client.embeddings.create({ model: "parrot", input, ...more })).data.map((d) => d.embedding);
show("embeddings", await vectors(["a", "bcd"]));
show("embeddings, as numbers", await vectors("ab", { encoding_format: "float" }));

// Many at once, and one that gives up.
async function late() {
  try { // 20 s: a busy machine has started the job by then
    await client.chat.completions.create(said("slow ".repeat(600), "slow-parrot"), { timeout: 20000 });
  } catch (err) {
    if (err instanceof OpenAI.APIConnectionTimeoutError) return "gave up";
    throw err;
  }
}
const numbers = [...Array(20).keys()].map((n) => `number ${n}`);
const [gaveUp, ...answers] = await Promise.all([late(), ...numbers.map((n) => text(streamed(n)))]);
show("chat, many at once", answers.every((a, n) => a === numbers[n]));
show("chat, the client gives up", gaveUp);

// One that is aborted in mid-stream.
const aborted = await streamed("slow ".repeat(600), client, "slow-parrot").withResponse();
for await (const event of aborted.data) {
  show("chat, aborted", event.choices[0].delta.content);
  aborted.data.controller.abort();
  break;
}
let job;
for (let i = 0; i < 600; i++) {
  const path = `${BASE_URL}/${WORKED}/status/${aborted.response.headers.get("x-job-id")}`;
  job = await (await fetch(path, { headers: { Authorization: `Bearer ${API_KEY}` } })).json();
  if (!["IN_QUEUE", "IN_PROGRESS"].includes(job.status)) break;
  await sleep(100);
}
show("its job", job.status);

// The errors of the engine.
show("no such model", await told(() => chat("hello", client, "cat")));
show("no such model, streamed", await told(() => streamed("hello", client, "cat")));
show("nothing to say", await told(() => chat("")));
show("no such route", await told(() => client.moderations.create({ input: "hello" })));
const failed = await told(() => chat("choke"));
show("the engine fails", failed.slice(0, 2), failed[2].includes("the parrot choked"));
let heard = "";
try {
  for await (const event of await streamed("one two choke", client, "slow-parrot")) heard += event.choices[0].delta.content;
} catch (err) {
  show("the engine fails in mid-stream", heard, err.message.includes("the parrot choked"));
}

// The errors of Flightline.
const wrong = at(WORKED, "wrong");
const limited = at(LIMITED); // has a worker too, and one request in 10 s
show("wrong key", await told(() => wrong.models.list()));
show("wrong key, streamed", await told(() => streamed("hello", wrong)));
show("no such endpoint", await told(() => chat("hello", at("nowhere"))));
show("too large", (await told(() => chat("x".repeat(20 << 20)))).slice(1));
show("within its limit", whole(await chat("hello", limited)));
show("too many", await told(() => chat("hello", limited)));
