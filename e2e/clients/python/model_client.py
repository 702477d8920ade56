"""Goes through what the published OpenAI client does with a model server, and
prints what it sees: the same, whether it speaks to the server or to an endpoint
before it."""

import asyncio
import json
import os

import openai

options = {"base_url": os.environ["BASE_URL"], "api_key": os.environ["API_KEY"], "max_retries": 0}
client = openai.OpenAI(**options)
MODEL = os.environ["MODEL"]
MORE = json.loads(os.environ["MORE"])  # what this server needs in a request, to answer the same each time
RESPONSE = {"max_output_tokens" if k == "max_tokens" else k: v for k, v in MORE.items()}
REPEATS = not MORE  # a stand-in repeats what it is asked, at once; a model takes its time
LONG, MANY = (400, 20) if REPEATS else (10, 4)


def show(step, *seen):
    print(step, *(json.dumps(s, ensure_ascii=False, separators=(",", ":")) for s in seen), flush=True)


def told(call):
    """How the call fails."""
    try:
        return f"no error: {call()}"
    except openai.APIStatusError as err:
        body = err.body if isinstance(err.body, dict) else {"message": err.body}
        return [type(err).__name__, err.status_code, body.get("message"), body.get("type"), body.get("param"), body.get("code")]


def chat(text, to=client, **more):
    return to.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **MORE, **more)


def whole(c):
    return [c.object, c.model, c.choices[0].message.content, c.choices[0].finish_reason, c.usage.model_dump()]


def parts(stream):
    return [[e.choices[0].delta.content, e.choices[0].finish_reason] if e.choices else e.usage.model_dump() for e in stream]


show("models", [m.id for m in client.models.list()])
show("one model", told(lambda: client.models.retrieve(MODEL)))
show("chat", whole(chat("a b")))
show("chat, unicode", whole(chat("héllo ✓ 🦜")))
show("chat, streamed", parts(chat("one two héllo ✓ 🦜", stream=True, stream_options={"include_usage": True})))
show("chat, streamed, long", "".join(p[0] or "" for p in parts(chat("wörd " * LONG, stream=True))).count("wörd"))
tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


def calls(c):
    return [c.finish_reason, [[t.function.name, json.loads(t.function.arguments)] for t in c.message.tool_calls or []]]


show("a tool", told(lambda: calls(chat("the weather", tools=[tool]).choices[0])))
show("completion", told(lambda: client.completions.create(model=MODEL, prompt="once upon", **MORE).choices[0].text))
show("embeddings", told(lambda: [len(d.embedding) for d in client.embeddings.create(model="text-embedding-3-small", input=["a", "bcd"]).data]))
show("response", told(lambda: client.responses.create(model=MODEL, input="hello", **RESPONSE).output_text))
show("response, streamed", told(lambda: [e.type for e in client.responses.create(model=MODEL, input="hello there", stream=True, **RESPONSE)]))


async def many():
    async with openai.AsyncOpenAI(**options) as several:

        async def one(n):
            return "".join([e.choices[0].delta.content or "" async for e in await chat(f"number {n}", several, stream=True)])

        return await asyncio.gather(*(one(n) for n in range(MANY)))


show("chat, many at once", [str(n) in text if REPEATS else text != "" for n, text in enumerate(asyncio.run(many()))])

show("too long for the model", told(lambda: chat("word " * 5000)))
show("too long, streamed", told(lambda: chat("word " * 5000, stream=True)))
show("no such route", told(lambda: client.post("/nothing", cast_to=object, body={"a": 1})))
show("no messages", told(lambda: client.post("/chat/completions", cast_to=object, body={"model": MODEL})))
