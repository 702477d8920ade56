"""A worker that does as the input of its jobs says, on the published package
alone. $HANDLER names its handler; $RUNS is the file in which it notes each
step, as "what id"; the file $GO lets those go on that wait for it, the files
$GO.0, $GO.1 and so on those generators that wait before a chunk."""

import asyncio
import os
import time

import runpod


def note(what, job):
    with open(os.environ["RUNS"], "a", encoding="utf-8") as runs:
        runs.write(f"{what} {job['id']}\n")


def may_go(chunk=None):
    return os.path.exists(os.environ["GO"] + ("" if chunk is None else f".{chunk}"))


def plain(job):
    note("start", job)
    given = job["input"]
    match given.get("do"):
        case "raise":
            raise ValueError("told to fail")
        case "error":
            return {"error": {"code": 7}, "partial": True}
        case "nothing":
            return None
        case "nan":
            return {"loss": float("nan"), "text": "NaN"}
        case "bytes":
            return "x" * given["bytes"]
        case "exit":
            os._exit(3)
        case "progress":
            runpod.serverless.progress_update(job, {"percent": 50})
        case "refresh":
            return {"refresh_worker": True, "done": True}
    while given.get("wait") and not may_go():
        time.sleep(0.05)
    note("end", job)
    return given


async def sleeper(job):
    note("start", job)
    try:
        await asyncio.sleep(job["input"].get("seconds", 0))
        while job["input"].get("wait") and not may_go():
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        note("cancelled", job)
        raise
    note("end", job)
    return job["input"]


def generator(job):
    note("start", job)
    given = job["input"]
    for n in range(given["chunks"]):
        if n == given.get("fail_at"):
            raise ValueError("told to fail")
        if n in given.get("wait_at", []):
            note("waits", job)
            while not may_go(n):
                time.sleep(0.05)  # the event loop stands still
        yield {"n": n}
    note("end", job)


async def async_generator(job):
    note("start", job)
    given = job["input"]
    for n in range(given["chunks"]):
        if n == given.get("fail_at"):
            raise ValueError("told to fail")
        if n in given.get("wait_at", []):
            note("waits", job)
            while not may_go(n):
                await asyncio.sleep(0.05)
        yield {"n": n}
    note("end", job)


HANDLERS = {
    "plain": {"handler": plain},
    "refreshing": {"handler": plain, "refresh_worker": True},
    "sleeper": {"handler": sleeper},
    "concurrent": {"handler": sleeper, "concurrency_modifier": lambda _: 8},
    "generator": {"handler": generator},
    "aggregate": {"handler": async_generator, "return_aggregate_stream": True},
}

if __name__ == "__main__":
    runpod.serverless.start(HANDLERS[os.environ["HANDLER"]])
