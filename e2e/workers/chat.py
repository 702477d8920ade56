"""Speaks as worker-vllm does: the job brings a route and a body of OpenAI's API,
and what is yielded is the text of the answer, event by event or in one piece."""

import json

import runpod

MODEL = "parrot"


def models():
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "flightline"}]}


def error(message, code=400, kind="BadRequestError"):
    return {"error": {"message": message, "type": kind, "code": code}}


def answer(job, said, kind, **choice):
    return {
        "id": f"chatcmpl-{job['id']}", "object": kind, "created": 0, "model": MODEL,
        "choices": [{"index": 0, **choice}],
        "usage": {"prompt_tokens": len(said), "completion_tokens": len(said), "total_tokens": 2 * len(said)},
    }


def chat(job, body):
    """Says again what the user said, word by word."""
    said = body["messages"][-1]["content"].split(" ")
    if not body.get("stream"):
        message = {"role": "assistant", "content": " ".join(said)}
        yield answer(job, said, "chat.completion", message=message, finish_reason="stop")
        return
    for n, word in enumerate(said):
        delta = {"role": "assistant", "content": word if n == 0 else " " + word}
        event = answer(job, said, "chat.completion.chunk", delta=delta, finish_reason=None)
        yield f"data: {json.dumps(event)}\n\n"
    event = answer(job, said, "chat.completion.chunk", delta={}, finish_reason="stop")
    yield f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"


def embeddings(body):
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [{"object": "embedding", "index": n, "embedding": [float(len(text)), 0.5]} for n, text in enumerate(texts)]
    return {"object": "list", "data": data, "model": MODEL, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


async def handler(job):
    route, body = job["input"].get("openai_route"), job["input"].get("openai_input") or {}
    if route == "/v1/models":
        yield models()
    elif body.get("model") != MODEL:
        yield error(f"The model `{body.get('model')}` does not exist.", 404, "NotFoundError")
    elif route == "/v1/chat/completions":
        for part in chat(job, body):
            yield part
    elif route == "/v1/embeddings":
        yield embeddings(body)
    else:
        yield error(f"no such route: {route}", 404, "NotFoundError")


if __name__ == "__main__":
    runpod.serverless.start(
        {"handler": handler, "concurrency_modifier": lambda current: 30, "return_aggregate_stream": True}
    )
