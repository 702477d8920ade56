"""Goes through all calls of the published asyncio client, and prints what it
sees. The client looks at no status code, so its errors are missing keys."""

import asyncio
import json
import os

import runpod
from runpod import AsyncioEndpoint, AsyncioJob, http_client

runpod.api_key = os.environ["API_KEY"]
runpod.endpoint_url_base = os.environ["BASE_URL"]


async def told(awaitable):
    """What the call returns, or how it fails."""
    try:
        return await awaitable
    except Exception as err:  # pylint: disable=broad-except
        return f"{type(err).__name__}: {err}"


async def collect(job):
    return [chunk async for chunk in job.stream()]


async def until(status, job):
    for _ in range(60):
        if await job.status() == status:
            return
        await asyncio.sleep(0.2)
    raise SystemExit(f"{job.job_id} is not {status}")


async def finish(job):
    return await job.output(timeout=30), await job.status()


def show(step, *seen):
    print(step, *(json.dumps(s, ensure_ascii=False, sort_keys=True) for s in seen), flush=True)


def named(answer):
    """An answer without what differs each time."""
    return answer.get("status"), answer.get("code")


async def good_paths(worked):
    show("run", await finish(await worked.run({"text": "héllo ✓", "n": 1.5})))
    show("run, empty input", await finish(await worked.run({})))
    show("run, handler fails", await finish(await worked.run({"do": "fail"})))
    output, status = await finish(await worked.run({"text": "x" * (9 << 20)}))
    show("run, 9 MB and back", len(output["text"]) == 9 << 20, status)
    jobs = await asyncio.gather(*(worked.run({"n": n}) for n in range(20)))
    show("run, many at once", sorted([(await finish(j))[0]["n"] for j in jobs]))
    show("stream", await collect(await worked.run({"do": "stream", "chunks": 3})))
    failing = await worked.run({"do": "fail", "chunks": 2})
    show("stream, then a failure", await collect(failing), await failing.status())


async def stopping(worked, idle):
    held = await worked.run({"do": "hold"})
    await until("IN_PROGRESS", held)
    show("output, not in time", await told(held.output(timeout=1)))
    cancelled = await held.cancel()
    show("cancel while it runs", cancelled["id"] == held.job_id, named(cancelled), await held.status(), await held.output(timeout=1))
    show("cancel again", named(await held.cancel()))
    other = await worked.run({"do": "hold", "chunks": 1})
    await until("IN_PROGRESS", other)
    await other.cancel()
    show("stream of a cancelled job", await anext(other.stream()))
    waiting = await idle.run({"n": 1})
    show("status while it waits", await waiting.status())
    show("cancel while it waits", named(await waiting.cancel()), await waiting.status())
    done = await worked.run({"n": 1})
    await finish(done)
    show("cancel when it is done", named(await done.cancel()))
    jobs = [await idle.run({"n": n}) for n in range(3)]
    show("purge_queue", await idle.purge_queue(), [await j.status() for j in jobs])
    show("purge_queue, nothing there", await idle.purge_queue())
    show("health", {k: sorted(v) for k, v in (await worked.health()).items()})


async def errors(session, worked, limited):
    wrong = AsyncioEndpoint(os.environ["WORKED"], session, api_key="wrong")
    show("wrong key, run", await told(wrong.run({"n": 1})))
    show("wrong key, health", named(await wrong.health()))
    show("wrong key, purge_queue", named(await wrong.purge_queue()))
    nowhere = AsyncioEndpoint("nowhere", session)
    show("no such endpoint, run", await told(nowhere.run({"n": 1})))
    show("no such endpoint, health", named(await nowhere.health()))
    lost = AsyncioJob(os.environ["WORKED"], "gone", session, worked.headers)
    show("no such job, cancel", named(await lost.cancel()))
    show("no such job, status", await told(lost.status()))
    show("no such job, stream", await told(collect(lost)))
    show("input that is no object", await told(worked.run([1])))
    show("run, over 10 MB", await told(worked.run({"text": "x" * (10 << 20)})))
    await limited.run({"n": 1})
    show("too many runs", await told(limited.run({"n": 2})))


async def main():
    async with http_client.AsyncClientSession() as session:
        worked, idle, limited = (AsyncioEndpoint(os.environ[n], session) for n in ("WORKED", "IDLE", "LIMITED"))
        await good_paths(worked)
        await stopping(worked, idle)
        await errors(session, worked, limited)


asyncio.run(main())
