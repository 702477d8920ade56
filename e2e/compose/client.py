"""A client on RunPod's published package: run and run_sync in turn, about two of
each a second, until it is told to stop. Prints a line of JSON for each call, with
the times, in seconds since 1970, between which it was made."""

import concurrent.futures
import itertools
import json
import os
import signal
import threading
import time

import runpod

with open("/run/flightline/api-key", encoding="utf-8") as f:
    runpod.api_key = f.read().strip()
runpod.endpoint_url_base = os.environ["BASE_URL"]
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())


def call(n):
    endpoint = runpod.Endpoint("python")
    text, how = f"python {n}", "run" if n % 2 else "run_sync"
    began = time.time()
    try:
        if how == "run":
            output = endpoint.run({"input": {"text": text}}).output(timeout=120)
        else:
            output = endpoint.run_sync({"input": {"text": text}}, timeout=120)
        error = "" if output == {"text": text.upper()} else f"wrong output {output}"
    except Exception as err:  # pylint: disable=broad-except
        error = f"{type(err).__name__}: {err}"
    print(json.dumps({"call": how, "error": error, "began": began, "ended": time.time()}), flush=True)


with concurrent.futures.ThreadPoolExecutor(64) as pool:
    for n in itertools.count():
        if stopped.wait(0.25):
            break
        pool.submit(call, n)
print("DONE", flush=True)
