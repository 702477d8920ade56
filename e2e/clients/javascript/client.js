// Goes through all calls of the published SDK, and prints what it sees.

import runpodSdk from "runpod-sdk";

const { API_KEY, BASE_URL, WORKED, IDLE, LIMITED } = process.env;
const sdk = runpodSdk(API_KEY, { baseUrl: BASE_URL });
const worked = sdk.endpoint(WORKED); // has a worker
const idle = sdk.endpoint(IDLE); // has none
const limited = sdk.endpoint(LIMITED); // one run in 10 s

const show = (step, ...seen) => console.log(step, ...seen.map((s) => JSON.stringify(s) ?? "undefined"));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// told is what the call returns, or how it fails, without what differs.
async function told(call) {
  try {
    return await call();
  } catch (err) {
    return err.response ? `${err.response.status} ${err.response.data?.code}` : String(err);
  }
}

async function until(endpoint, id, ...statuses) {
  for (let i = 0; i < 300; i++) {
    const job = await endpoint.status(id);
    if (statuses.includes(job.status)) return job;
    await sleep(100);
  }
  throw new Error(`${id} is not ${statuses}`);
}

const isFinal = ["COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"];
const finished = (endpoint, { id }) => until(endpoint, id, ...isFinal);

async function collect(endpoint, { id }) {
  const chunks = [];
  for await (const chunk of endpoint.stream(id)) chunks.push(chunk);
  return chunks;
}

// shape replaces what differs from run to run by its kind.
function shape(job) {
  const of = { id: "ID", workerId: "WORKER" };
  return Object.fromEntries(
    Object.entries(job).map(([k, v]) => [k, of[k] ?? (["delayTime", "executionTime"].includes(k) ? Number.isInteger(v) : v)]),
  );
}

// The good paths.
const input = { text: "héllo ✓", n: 1.5 };
const run = await worked.run({ input });
show("run", shape(run));
show("status", shape(await finished(worked, run)));
show("runSync", shape(await worked.runSync({ input })));
show("runSync, beyond its wait", shape(await worked.runSync({ input: { do: "nap", ms: 2500 } }, 1000)));
show("runSync, handler fails", shape(await worked.runSync({ input: { do: "fail" } })));
show("run, with policy and webhook", shape(await worked.run({ input, policy: { executionTimeout: 5000, lowPriority: true }, webhookV2: null })));
const large = await worked.runSync({ input: { text: "x".repeat(9 << 20) } });
show("runSync, 9 MB and back", large.output.text.length === 9 << 20);

show("stream", await collect(worked, await worked.run({ input: { do: "stream", chunks: 3 } })));
const slow = await worked.run({ input: { do: "nap", ms: 1500, chunks: 1 } });
show("stream, held until it is over", await collect(worked, slow), (await worked.status(slow.id)).status);
const failing = await worked.run({ input: { do: "fail", chunks: 2 } });
show("stream, then a failure", await collect(worked, failing), shape(await worked.status(failing.id)));

// What runs, waits, is cancelled and purged.
const held = await worked.run({ input: { do: "hold" } });
let running = await until(worked, held.id, "IN_PROGRESS");
for (let i = 0; i < 50 && !running.output; i++) running = (await sleep(100), await worked.status(held.id));
show("status while it runs", shape(running));
show("cancel while it runs", shape(await worked.cancel(held.id)), (await worked.status(held.id)).status);
show("cancel again", shape(await worked.cancel(held.id)));
const other = await worked.run({ input: { do: "hold", chunks: 1 } });
await until(worked, other.id, "IN_PROGRESS");
await worked.cancel(other.id);
show("stream of a cancelled job ends", (await collect(worked, other)).length <= 1);
const waiting = await idle.run({ input });
show("status while it waits", shape(await idle.status(waiting.id)));
show("runSync of what waits", shape(await idle.statusSync(waiting.id, 1000)));
show("cancel while it waits", shape(await idle.cancel(waiting.id)));
show("cancel when it is done", await told(() => worked.cancel(run.id)));

const jobs = [await idle.run({ input }), await idle.run({ input }), await idle.run({ input })];
let health = await idle.health();
for (let i = 0; i < 50 && health.jobs.inQueue !== 3; i++) health = (await sleep(100), await idle.health());
show("health", health);
show("purgeQueue", await idle.purgeQueue(), (await Promise.all(jobs.map((j) => idle.status(j.id)))).map((j) => j.status));
show("purgeQueue, nothing there", await idle.purgeQueue());

// The errors.
const wrong = runpodSdk("wrong", { baseUrl: BASE_URL }).endpoint(WORKED);
const nowhere = sdk.endpoint("nowhere");
const calls = {
  run: (e) => e.run({ input }),
  runSync: (e) => e.runSync({ input }),
  status: (e) => e.status("gone"),
  statusSync: (e) => e.statusSync("gone"),
  stream: (e) => e.stream("gone").next(),
  cancel: (e) => e.cancel("gone"),
  health: (e) => e.health(),
  purgeQueue: (e) => e.purgeQueue(),
};
for (const [name, call] of Object.entries(calls)) {
  show(`wrong key, ${name}`, await told(() => call(wrong)));
  show(`no such endpoint, ${name}`, await told(() => call(nowhere)));
  if (call.toString().includes("gone")) show(`no such job, ${name}`, await told(() => call(worked)));
}
show("no input", await told(() => worked.run({})), await told(() => worked.runSync({})));
show("input that is no object", await told(() => worked.run({ input: [1] })));
show("run, over 10 MB", await told(() => worked.run({ input: { text: "x".repeat(10 << 20) } })));
await limited.run({ input });
show("too many runs", await told(() => limited.run({ input })));
