"""Speaks as worker-vllm does: the job brings a route and a body of OpenAI's API,
and what is yielded is the text of the answer, cut where it happens to be cut, or
all of it in one piece. The parrot stands for the engine."""

import asyncio
import base64
import json
import struct

import runpod

MODELS = {"parrot": 0, "slow-parrot": 0.5}  # seconds for a word


class Refused(Exception):
    """An error of the engine, with its status."""

    def __init__(self, code, kind, message):
        super().__init__(message)
        self.told = {"error": {"message": message, "type": kind, "code": code}}


def models():
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "flightline"} for name in MODELS]
    return {"object": "list", "data": data}


async def words(body, text):
    """What the engine says, word by word, as fast as the model speaks."""
    for n, word in enumerate(text.split(" ")):
        await asyncio.sleep(MODELS[body["model"]])
        if word == "choke":
            raise RuntimeError("the parrot choked")
        yield word if n == 0 else " " + word


async def answer(job, body, kind, text, choice):
    """Answers with the text, as choice puts it into an answer or an event."""
    if not text:
        raise Refused(400, "BadRequestError", "there is nothing to say")
    head = {"id": f"cmpl-{job['id']}", "object": kind, "created": 0, "model": body["model"]}
    if not body.get("stream"):
        said = "".join([word async for word in words(body, text)])
        n = len(said.split(" "))
        usage = {"prompt_tokens": n, "completion_tokens": n, "total_tokens": 2 * n}
        yield {**head, "choices": [{"index": 0, **choice(said, "stop")}], "usage": usage}
        return
    if kind == "chat.completion":
        head["object"] = "chat.completion.chunk"

    def event(said, reason):
        return f"data: {json.dumps({**head, 'choices': [{'index': 0, **choice(said, reason)}]}, ensure_ascii=False)}\n\n"

    ready, n = "", 0
    async for word in words(body, text):
        ready, n = ready + event(word, None), n + 1
        cut = len(ready) - n % 7  # an engine's bytes come as the network cuts them
        yield ready[:cut]
        ready = ready[cut:]
    yield ready + event("", "stop") + "data: [DONE]\n\n"


def chat(job, body):
    part = "delta" if body.get("stream") else "message"

    def choice(said, reason):
        return {part: {"role": "assistant", "content": said}, "finish_reason": reason}

    messages = body.get("messages") or [{}]
    return answer(job, body, "chat.completion", messages[-1].get("content"), choice)


def completion(job, body):
    def choice(said, reason):
        return {"text": said, "finish_reason": reason, "logprobs": None}

    return answer(job, body, "text_completion", body.get("prompt"), choice)


async def embeddings(_job, body):
    """Vectors as numbers, or as the bytes of numbers, as OpenAI's clients ask."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = []
    for n, text in enumerate(texts):
        vector = [len(text) + 0.25, 0.5]
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack("<2f", *vector)).decode()
        data.append({"object": "embedding", "index": n, "embedding": vector})
    yield {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 1, "total_tokens": 1}}


ROUTES = {"/v1/chat/completions": chat, "/v1/completions": completion, "/v1/embeddings": embeddings}


def engine(job):
    """Finds what answers, as the engine's own server would."""
    route, body = job["input"].get("openai_route"), job["input"].get("openai_input") or {}
    if route not in ROUTES:
        raise Refused(404, "NotFoundError", f"no such route: {route}")
    if body.get("model") not in MODELS:
        raise Refused(404, "NotFoundError", f"The model `{body.get('model')}` does not exist.")
    return ROUTES[route](job, body)


async def handler(job):
    if job["input"].get("openai_route") == "/v1/models":
        yield models()
        return
    try:
        async for part in engine(job):
            yield part
    except Refused as err:
        yield err.told
    except (asyncio.CancelledError, GeneratorExit):
        print(f"stopped {job['id']}", flush=True)  # nobody waits any more: stop the engine
        raise


if __name__ == "__main__":
    runpod.serverless.start(
        {"handler": handler, "concurrency_modifier": lambda current: 30, "return_aggregate_stream": True}
    )
