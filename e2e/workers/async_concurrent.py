"""An async handler that runs up to eight jobs at once. It must await; a handler
that blocks keeps the other seven, and word of a cancel, from being heard."""

import asyncio

import runpod


async def handler(job):
    try:
        await asyncio.sleep(job["input"].get("seconds", 1))
    except asyncio.CancelledError:
        # The job was cancelled or timed out: tidy up, then let it end.
        raise
    return {"slept": job["input"].get("seconds", 1)}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 8})
