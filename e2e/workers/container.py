"""Lets a worker in a container in.

    container.py let-in        makes the endpoint and a token, and leaves the
                               worker's environment in /worker/env.json. A token
                               that is there and lets in is kept: a new one would
                               shut out the worker that runs
    container.py HANDLER.py    becomes that handler, with that environment

The first needs an API key, the second does not: what runs jobs of others
should know no more than the token of one endpoint.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

KEPT = os.environ.get("WORKER_ENV", "/worker/env.json")


def call(path, body=None):
    with open(os.environ["FLIGHTLINE_API_KEY_FILE"], encoding="utf-8") as f:
        key = f.read().strip()
    request = urllib.request.Request(
        os.environ["FLIGHTLINE_URL"] + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": "Bearer " + key, "Content-Type": "application/json"},
    )
    for pause in [1] * 30 + [0]:  # the server may be starting
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code != 503 or not pause:
                raise
        except (urllib.error.URLError, OSError):
            if not pause:
                raise
        time.sleep(pause)


def bucket():
    """The environment's bucket, made if it is not there; {} if there is none."""
    names = ["BUCKET_ENDPOINT_URL", "BUCKET_NAME", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY"]
    env = {name: os.environ[name] for name in names if os.environ.get(name)}
    if len(env) < len(names):
        return {}
    import boto3  # RunPod's SDK brings it

    s3 = boto3.client(
        "s3",
        endpoint_url=env["BUCKET_ENDPOINT_URL"],
        aws_access_key_id=env["BUCKET_ACCESS_KEY_ID"],
        aws_secret_access_key=env["BUCKET_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    try:
        s3.create_bucket(Bucket=env["BUCKET_NAME"])
    except (s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists):
        pass
    if os.environ.get("BUCKET_PUBLIC_URL"):
        env["BUCKET_PUBLIC_URL"] = os.environ["BUCKET_PUBLIC_URL"]
    return env


def kept(endpoint, name):
    """The worker that env.json lets in, with its token; None if it lets nobody in."""
    try:
        with open(KEPT, encoding="utf-8") as f:
            token = json.load(f)["RUNPOD_AI_API_KEY"]
    except (FileNotFoundError, KeyError, ValueError):
        return None
    for worker in call(f"/v1/endpoints/{endpoint}/workers"):
        if worker["id"] == name and worker["last4"] and token.endswith(worker["last4"]):
            return {**worker, "token": token}
    return None


def let_in():
    endpoint = os.environ["ENDPOINT"]
    try:
        call("/v1/endpoints", {"id": endpoint})
    except urllib.error.HTTPError as e:
        if e.code != 409:  # it is there
            raise
    name = os.environ.get("WORKER_ID", "compose-1")
    worker = kept(endpoint, name) or call(f"/v1/endpoints/{endpoint}/workers", {"id": name})
    if worker.get("draining"):
        print(f"{name} is drained and gets no jobs; for a new token remove {KEPT} first", file=sys.stderr)
    base = f"{os.environ['GATEWAY_URL']}/v2/{endpoint}"
    env = {
        "RUNPOD_WEBHOOK_GET_JOB": f"{base}/job-take/{name}?gpu=any",
        "RUNPOD_WEBHOOK_POST_OUTPUT": f"{base}/job-done/{name}/$ID?gpu=any",
        "RUNPOD_WEBHOOK_POST_STREAM": f"{base}/job-stream/{name}/$ID?gpu=any",
        "RUNPOD_WEBHOOK_PING": f"{base}/ping/{name}?gpu=any",
        "RUNPOD_PING_INTERVAL": str(worker["pingIntervalMs"]),
        "RUNPOD_AI_API_KEY": worker["token"],
        "RUNPOD_POD_ID": name,
        "RUNPOD_ENDPOINT_ID": endpoint,
        "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
        **bucket(),
    }
    new = KEPT + ".new"  # a worker may start while this is written
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as f:
        json.dump(env, f)
    os.replace(new, KEPT)


def main():
    if sys.argv[1:] == ["let-in"]:
        let_in()
        return
    with open(KEPT, encoding="utf-8") as f:
        os.environ.update(json.load(f))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


main()
