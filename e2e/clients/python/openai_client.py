"""Goes through what the published OpenAI client does with an endpoint, and
prints what it sees, in the words that openai_client.js uses too."""

import asyncio
import json
import os
import time

import httpx
import openai

KEY, BASE = os.environ["API_KEY"], os.environ["BASE_URL"]
WORKED = os.environ["WORKED"]  # has a worker, the parrot
LIMITED = os.environ["LIMITED"]  # has one too, and one request in 10 s


def at(kind, endpoint, key=KEY):
    return kind(base_url=f"{BASE}/{endpoint}/openai/v1", api_key=key, max_retries=0)


client = at(openai.OpenAI, WORKED)


def show(step, *seen):
    print(step, *(json.dumps(s, ensure_ascii=False, separators=(",", ":")) for s in seen), flush=True)


def told(call):
    """How the call fails."""
    try:
        return f"no error: {call()}"
    except openai.APIStatusError as err:
        body = err.body or {}
        return [type(err).__name__, err.status_code, body.get("message"), body.get("type"), str(body.get("code"))]


def chat(text, to=client, model="parrot", **more):
    return to.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)


def whole(c):
    return [c.object, c.model, c.choices[0].message.content, c.choices[0].finish_reason, c.usage.total_tokens]


def parts(stream):
    return [[e.choices[0].delta.content, e.choices[0].finish_reason] for e in stream]


# The good paths.
show("models", [m.id for m in client.models.list()])
raw = client.chat.completions.with_raw_response.create(model="parrot", messages=[{"role": "user", "content": "a b"}])
show("chat", whole(raw.parse()), raw.parse().id == "cmpl-" + raw.headers["x-job-id"])
show("chat, unicode", whole(chat("héllo ✓ 🦜")))
show("chat, streamed", parts(chat("one two three héllo ✓ 🦜", stream=True)))
show("chat, streamed, long", "".join(p[0] for p in parts(chat("word " * 499 + "word", stream=True))) == "word " * 499 + "word")
show("chat, 900 KB and back", len(chat("x" * 900_000).choices[0].message.content))
completion = client.completions.create(model="parrot", prompt="once upon")
show("completion", [completion.object, completion.choices[0].text])
show("completion, streamed", [e.choices[0].text for e in client.completions.create(model="parrot", prompt="once upon", stream=True)])
show("embeddings", [d.embedding for d in client.embeddings.create(model="parrot", input=["a", "bcd"]).data])
floats = client.embeddings.create(model="parrot", input="ab", encoding_format="float")
show("embeddings, as numbers", [d.embedding for d in floats.data])


# Many at once, and one that gives up.
async def many():
    async with at(openai.AsyncOpenAI, WORKED) as several:

        async def one(n):
            return "".join([e.choices[0].delta.content async for e in await chat(f"number {n}", several, stream=True)])

        async def late():
            try:  # 20 s: a busy machine has started the job by then
                await chat("slow " * 600, several, "slow-parrot", timeout=20)
            except openai.APITimeoutError:
                return "gave up"

        return await asyncio.gather(late(), *(one(n) for n in range(20)))


gave_up, *answers = asyncio.run(many())
show("chat, many at once", sorted(answers) == sorted(f"number {n}" for n in range(20)))
show("chat, the client gives up", gave_up)

# One that is aborted in mid-stream.
with client.chat.completions.with_streaming_response.create(
    model="slow-parrot", messages=[{"role": "user", "content": "slow " * 600}], stream=True
) as response:
    job = response.headers["x-job-id"]
    first = next(iter(response.parse()))
show("chat, aborted", first.choices[0].delta.content)
for _ in range(600):
    seen = httpx.get(f"{BASE}/{WORKED}/status/{job}", headers={"Authorization": f"Bearer {KEY}"}).json()
    if seen["status"] not in ("IN_QUEUE", "IN_PROGRESS"):
        break
    time.sleep(0.1)
show("its job", seen["status"])

# The errors of the engine.
show("no such model", told(lambda: chat("hello", model="cat")))
show("no such model, streamed", told(lambda: chat("hello", model="cat", stream=True)))
show("nothing to say", told(lambda: chat("")))
show("no such route", told(lambda: client.moderations.create(input="hello")))
failed = told(lambda: chat("choke"))
show("the engine fails", failed[:2], "the parrot choked" in failed[2])
heard = []
try:
    for event in chat("one two choke", model="slow-parrot", stream=True):
        heard.append(event.choices[0].delta.content)
except openai.APIError as err:
    show("the engine fails in mid-stream", "".join(heard), "the parrot choked" in err.message)

# The errors of Flightline.
wrong, nowhere, limited = at(openai.OpenAI, WORKED, "wrong"), at(openai.OpenAI, "nowhere"), at(openai.OpenAI, LIMITED)
show("wrong key", told(wrong.models.list))
show("wrong key, streamed", told(lambda: chat("hello", wrong, stream=True)))
show("no such endpoint", told(lambda: chat("hello", nowhere)))
show("too large", told(lambda: chat("x" * (20 << 20)))[1:])
show("within its limit", whole(chat("hello", limited)))
show("too many", told(lambda: chat("hello", limited)))
