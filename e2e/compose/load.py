"""The worker of the tests: what plain.py does, for fifty jobs at once."""

import runpod


async def handler(job):
    return {"text": job["input"].get("text", "").upper()}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 50})
