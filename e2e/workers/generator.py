"""A generator: what it yields can be read from /stream at once. An error in
the middle fails the job; the chunks before it stay readable."""

import runpod


def handler(job):
    for word in job["input"].get("text", "").split():
        yield {"word": word}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
