"""Goes through what the published OpenAI client does with a model server, and
prints what it sees: the same, whether it speaks to the server or to an endpoint
before it."""

import asyncio
import json
import os

import openai

options = {"base_url": os.environ["BASE_URL"], "api_key": os.environ["API_KEY"], "max_retries": 0}
client = openai.OpenAI(**options)
MODEL = "gpt-4o"


def show(step, *seen):
    print(step, *(json.dumps(s, ensure_ascii=False, separators=(",", ":")) for s in seen), flush=True)


def told(call):
    """How the call fails."""
    try:
        return f"no error: {call()}"
    except openai.APIStatusError as err:
        body = err.body or {}
        return [type(err).__name__, err.status_code, body.get("message"), body.get("type"), body.get("param"), body.get("code")]


def chat(text, to=client, **more):
    return to.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **more)


def whole(c):
    return [c.object, c.model, c.choices[0].message.content, c.choices[0].finish_reason, c.usage.model_dump()]


def parts(stream):
    return [[e.choices[0].delta.content, e.choices[0].finish_reason] if e.choices else e.usage.model_dump() for e in stream]


show("models", [m.id for m in client.models.list()])
show("one model", told(lambda: client.models.retrieve(MODEL)))
show("chat", whole(chat("a b")))
show("chat, unicode", whole(chat("héllo ✓ 🦜")))
show("chat, streamed", parts(chat("one two héllo ✓ 🦜", stream=True, stream_options={"include_usage": True})))
show("chat, streamed, long", "".join(p[0] or "" for p in parts(chat("wörd " * 400, stream=True))).count("wörd"))
tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
call = chat("the weather", tools=[tool]).choices[0]
show("a tool", call.finish_reason, [[c.function.name, json.loads(c.function.arguments)] for c in call.message.tool_calls])
show("completion", told(lambda: client.completions.create(model=MODEL, prompt="once upon")))
show("embeddings", [len(d.embedding) for d in client.embeddings.create(model="text-embedding-3-small", input=["a", "bcd"]).data])
show("response", client.responses.create(model=MODEL, input="hello").output_text)
show("response, streamed", [e.type for e in client.responses.create(model=MODEL, input="hello there", stream=True)])


async def many():
    async with openai.AsyncOpenAI(**options) as several:

        async def one(n):
            return "".join([e.choices[0].delta.content or "" async for e in await chat(f"number {n}", several, stream=True)])

        return await asyncio.gather(*(one(n) for n in range(20)))


show("chat, many at once", [str(n) in text for n, text in enumerate(asyncio.run(many()))])

show("too long for the model", told(lambda: chat("word " * 5000)))
show("too long, streamed", told(lambda: chat("word " * 5000, stream=True)))
show("no such route", told(lambda: client.post("/nothing", cast_to=object, body={"a": 1})))
show("no messages", told(lambda: client.post("/chat/completions", cast_to=object, body={"model": MODEL})))
