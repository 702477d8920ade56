"""A plain handler: a function from a job to its output."""

import runpod


def handler(job):
    text = job["input"].get("text", "")
    return {"text": text.upper()}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
