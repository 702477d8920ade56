"""A generator whose chunks are the job's output too, as one list."""

import asyncio

import runpod


async def handler(job):
    for number in range(job["input"].get("to", 3)):
        await asyncio.sleep(0)  # where a model would compute
        yield {"number": number}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
