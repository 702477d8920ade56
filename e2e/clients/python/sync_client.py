"""Goes through all calls of the published client, and prints what it sees."""

import json
import os
import time

import requests
import runpod

runpod.api_key = os.environ["API_KEY"]
runpod.endpoint_url_base = os.environ["BASE_URL"]

worked = runpod.Endpoint(os.environ["WORKED"])  # has a worker
idle = runpod.Endpoint(os.environ["IDLE"])  # has none
limited = runpod.Endpoint(os.environ["LIMITED"])  # one run, one status in 10 s


def told(call, *args, **kwargs):
    """What the call returns, or how it fails, without what differs each time."""
    try:
        return call(*args, **kwargs)
    except requests.HTTPError as err:
        body = err.response.json()
        return f"HTTPError {err.response.status_code} {body['code']}"
    except Exception as err:  # pylint: disable=broad-except
        return f"{type(err).__name__}: {err}"


def show(step, *seen):
    print(step, *(json.dumps(s, ensure_ascii=False, sort_keys=True) for s in seen), flush=True)


def until(status, job):
    for _ in range(60):
        if job.status() == status:
            return
        time.sleep(0.2)
    raise SystemExit(f"{job.job_id} is {job.status()}, not {status}")


def finish(job):
    return job.output(timeout=30), job.status()


# The good paths.
show("run", finish(worked.run({"input": {"text": "héllo ✓ \u2028", "n": 1.5}})))
show("run, not wrapped", finish(worked.run({"text": "hello"})))
show("run, with what it does not know", finish(worked.run({"input": {"n": 1}, "extra": {"a": 1}, "webhookV2": None})))
show("run, empty input", finish(worked.run({})))
show("run_sync", worked.run_sync({"input": {"n": 2}}))
show("run_sync, handler fails", worked.run_sync({"input": {"do": "fail"}}))
show("run, handler fails", finish(worked.run({"do": "fail"})))
show("run, 9 MB and back", len(finish(worked.run({"text": "x" * (9 << 20)}))[0]["text"]) == 9 << 20)
show("run_sync, 18 MB and back", len(worked.run_sync({"text": "x" * (18 << 20)})["text"]) == 18 << 20)

show("stream", list(worked.run({"do": "stream", "chunks": 3}).stream()))
failing = worked.run({"do": "fail", "chunks": 2})
show("stream, then a failure", list(failing.stream()), failing.status(), failing.output())
show("stream of none", list(worked.run({"n": 1}).stream()))

# What runs, waits, is cancelled and purged.
held = worked.run({"do": "hold"})
until("IN_PROGRESS", held)
progress = held.output()
for _ in range(50):
    progress = progress or time.sleep(0.1) or held.output()
show("status and output while it runs", held.status(), progress)
show("output, not in time", told(held.output, timeout=1))
cancelled = held.cancel()
show("cancel while it runs", cancelled["id"] == held.job_id, cancelled["status"], held.status(), held.output())
show("cancel again", told(held.cancel)["status"])
other = worked.run({"do": "hold", "chunks": 1})
until("IN_PROGRESS", other)
other.cancel()
show("stream of a cancelled job", next(other.stream()))

waiting = idle.run({"n": 1})
show("status while it waits", waiting.status(), waiting.output())
show("cancel while it waits", waiting.cancel()["status"], waiting.status())
done = worked.run({"n": 1})
finish(done)
show("cancel when it is done", told(done.cancel))

jobs = [idle.run({"n": n}) for n in range(3)]
for _ in range(50):
    health = idle.health()
    if health["jobs"]["inQueue"] == 3:
        break
    time.sleep(0.1)
show("health", health)
show("purge_queue", idle.purge_queue(), [j.status() for j in jobs])
show("purge_queue, nothing there", idle.purge_queue())
show("health with a worker", {k: sorted(v) for k, v in worked.health().items()}, worked.health()["jobs"]["inQueue"])

# The errors.
wrong = runpod.Endpoint(os.environ["WORKED"], api_key="wrong")
for name in ("health", "purge_queue"):
    show(f"wrong key, {name}", told(getattr(wrong, name))[:12])
show("wrong key, run", told(wrong.run, {"n": 1})[:12])
show("wrong key, run_sync", told(wrong.run_sync, {"n": 1})[:12])
nowhere = runpod.Endpoint("nowhere")
show("no such endpoint, run", told(nowhere.run, {"n": 1}))
show("no such endpoint, run_sync", told(nowhere.run_sync, {"n": 1}))
show("no such endpoint, health", told(nowhere.health))
for name in ("status", "output", "stream", "cancel"):
    lost = runpod.endpoint.runner.Job(worked.endpoint_id, "gone", worked.rp_client)
    show(f"no such job, {name}", told(lambda n=name, j=lost: list(j.stream()) if n == "stream" else getattr(j, n)()))
show("input that is no object", told(worked.run, {"input": [1]}), told(worked.run_sync, {"input": "text"}))
show("policy out of range", told(worked.run, {"input": {"n": 1}, "policy": {"ttl": 1}}))
show("run, over 10 MB", told(worked.run, {"text": "x" * (10 << 20)}))
show("run_sync, over 20 MB", told(worked.run_sync, {"text": "x" * (20 << 20)}))

first = limited.run({"n": 1})
show("too many runs", told(limited.run, {"n": 2}))
show("too many statuses are waited out", [first.status(), first.status()])
