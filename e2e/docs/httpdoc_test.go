package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

const (
	httpFile   = "../../docs/http.md"
	goldenPath = "../../services/api/testdata/*.http"
)

// texts say what the routes are for, in the document's order.
var texts = []struct{ name, text string }{
	{"POST /v2/:endpoint/run", "Submits a job and answers at once. The body is `{\"input\": {…}}` and may have `webhook`, `policy` and `s3Config`; other keys are ignored, and no worker gets them. " + repeats + " `Prefer: wait=N` (seconds, at most 300) waits for the end like runsync. A 200 means that the job is kept as safely as the durability setting says ([operating.md](operating.md))."},
	{"POST /v2/:endpoint/runsync", waits("Submits a job and waits for its end.", "When that is over the answer is the job as it is then, and the job goes on. `Prefer: respond-async` does not wait at all. ") + repeats},
	{"GET, POST /v2/:endpoint/status/:id", "Returns the job, with its output once there is one. `Prefer: wait=N` waits for the end like status-sync. `?ttl=` (milliseconds from the submission, " + bounds(job.MinChangedTTL.Milliseconds(), job.MaxTTL.Milliseconds()) + ") first changes its ttl, which needs the permission submit; the same value again changes nothing. Chunks that were put out before keep the age that they had."},
	{"GET, POST /v2/:endpoint/status-sync/:id", waits("Like status, but waits for the job's end.", "When that is over it answers like status.")},
	{"GET, POST /v2/:endpoint/stream/:id", "Reads what the job puts out while it runs, each chunk verbatim. The form is an array (or what the server's `--stream-format` says), or `{\"status\", \"stream\"}` for POST, for a request with the content type JSON and for RunPod's clients; `?format=object`, `array` or `sse` and the endpoint's `streamFormat` decide. It answers at once with the chunks that were not read yet, at most 2 MB of them, else it holds: 9 s, or `?wait=` milliseconds, " + bounds(job.MinWait.Milliseconds(), job.MaxWait.Milliseconds()) + ". The job's end comes with the last chunk or after it. `?cursor=N` reads behind that cursor (0: all) and leaves the server's alone; `X-Stream-Cursor` is the next one. With `Accept: text/event-stream` each chunk is an event whose `id` is its cursor, for `Last-Event-ID`, and the last event is `status`, or `gone` if the ttl ended the job. A job that was CANCELLED 30 s ago answers 404 to requests without a cursor."},
	{"POST /v2/:endpoint/cancel/:id", "Ends a job that waits or runs; a running handler learns of it within a second. A CANCELLED job is answered as if it had just been cancelled."},
	{"POST /v2/:endpoint/retry/:id", "Queues a FAILED or TIMED_OUT job again: the same id, input and ttl. While it waits, a repeated retry has the same answer."},
	{"POST /v2/:endpoint/purge-queue", "Cancels every waiting job; running ones go on. The count is exact."},
	{"GET /v2/:endpoint/requests", "Lists the endpoint's jobs, the newest first: those that wait or run, by when they were queued, and those that are over, by when they ended, while their results can be read. `?status=` wants one status or several, separated by commas; `?worker=` the jobs whose last run a worker has or had; `?fingerprint=` those that failed of a cause; `?from=` and `?to=` those that were queued, or ended, between two instants or so long ago (as `10m`); `?id=` those whose ids begin so. `?limit=` is 1 to 100, 10 unless given. While `hasMore` is true, `?cursor=` brings the next page, with the same endpoint and filters; a page may be short, or empty, all the same. A job whose status changes between two pages may be on neither of them. If `?status=` names some of the four ended statuses but not all, jobs that ended in the last moments fill one page at most; more of them are missing. With `?to=` or `?id=` a job whose ttl was changed later may be missing."},
	{"GET, POST /v2/:endpoint/openai/+", "Answers as an OpenAI server would ([openai.md](openai.md)): any path, with a JSON object for a body, becomes a job with the input `{\"openai_route\", \"openai_input\"}`, and what its worker puts out is the answer, also as an event stream. It waits for as long as the job lives; a client that leaves cancels it. Errors have OpenAI's shape, with the job's status or the worker's. `X-Request-ID` is the job's id."},
	{"GET /v2/:endpoint/events", "Streams what happens to the endpoint's jobs, as server-sent events: the `data` of each is a CloudEvents 1.0 document, its name the type and its `id` the place in the log, for `Last-Event-ID` ([events.md](events.md)). It begins now, or behind `?cursor=` (0: all that is kept), or with what was recorded `?since=` an instant (RFC 3339) or so long ago (`10m`). `?type=` wants one type or several, separated by commas; `?follow=false` ends, with an event `end`, after the last event that there is. There is a keep-alive every 10 s. A connection ends after an hour; a client that reconnects misses nothing. It counts as `stream` for the limits."},
	{"GET /v2/:endpoint/events/:id", "The same of one job, also after it can no longer be read. It does not end with the job: a retry may follow."},
	{"GET /v2/:endpoint/stats", "Counts what happened at the endpoint, by the minute or by the hour ([statistics.md](statistics.md)): attempts by outcome, percentiles of delay and execution, the most workers, seconds of busy GPUs. `?from=` and `?to=` bound the time, the last hour unless given, at most 90 days apart; `?step=` is 60 seconds, for at most 48 hours, or 3600; unless given it is 60 for at most 24 hours. A time in which nothing happened has no point. It shares the limit `stats` with `/failures`."},
	{"GET /v2/:endpoint/failures", "Groups the endpoint's failures by their cause ([statistics.md](statistics.md)): a `fingerprint` of the error without its numbers, ids and paths, how often, when first and last, and the last five jobs. `?from=` and `?to=` bound the time, the last 24 hours unless given, at most 7 days apart. `/requests?fingerprint=` lists the jobs."},
	{"GET /v1/overview", "Lists the endpoints that the key may read with what a person looks at first: jobs, workers, the last hour by the minute, and what needs attention. `?limit=` is 1 to 1000, 100 unless given; while there is a `cursor`, `?cursor=` brings the next page. `?attention=true` lists only the endpoints that need attention."},
	{"GET /v1/failures", "The same as an endpoint's failures, of all endpoints that the key may read, at most 1000 groups, the most frequent first."},
	{"GET /v1/jobs/:id", "Finds a job without its endpoint, among the endpoints that the key may read. The cost grows with the endpoints, not with the jobs."},
	{"GET /v1/workers", "Lists the workers that live, of all endpoints that the key may read, by endpoint and id: state, the jobs that they hold, machine, GPUs and version, by their last heartbeats. `?endpoint=` and `?id=` narrow it; `?limit=` is 1 to 1000, 100 unless given; `cursor` of an answer brings the next page, as `?cursor=`."},
	{"GET /v1/events", "The events of all endpoints that the key may read, as those of one."},
	{"GET /v2/:endpoint/logs", "Streams what the endpoint's workers print, as server-sent events ([logs.md](logs.md)): the `data` of each is a line with `time`, `workerId`, `stream` and `text`, and `jobId` and `level` where the line names them; its `id` is for `Last-Event-ID`. It begins now, or behind `?cursor=` (0: all that is kept), or with what was printed `?since=` an instant (RFC 3339) or so long ago (`10m`). `?worker=` wants one worker; `?follow=false` ends, with an event `end`, after the last line that there is. There is a keep-alive every 10 s, and a connection ends after an hour. It counts as `stream` for the limits."},
	{"GET /v2/:endpoint/logs/:id", "The same of the lines that name one job. It begins with the first of them, and ends 3 s after the job. A job that can no longer be read is 404 unless there are lines of it."},
	{"GET /v2/:endpoint/health", "Counts jobs and workers. The numbers of jobs that wait or run are at most a second old; those of workers are by their last heartbeats, every 5 s, and a dead one counts for up to 15 s; `completed`, `failed` and `retried` are counted by the recorder, some seconds later. `failed` counts what ended FAILED or TIMED_OUT; nothing counts what was cancelled. `ready` equals `idle`."},
	{"GET /v2/:endpoint/explain/:id", "Explains why the job is where it is ([explain.md](explain.md)): `reason` is a sentence; the other fields are its place in the queue, the workers by state, how the last one ended, and what the autoscaler decided."},
	{"GET /v2/:endpoint/input/:id", "Returns what the job was given, for who may read its output: `{\"id\", \"status\", \"input\"}`. `input` is absent once nothing keeps it: that of a job which is COMPLETED or CANCELLED is dropped unless the job has a webhook, that of one which is FAILED or TIMED_OUT is kept for a retry. It counts as `status` for the limits."},
	{"GET /v2/:endpoint/scale", "Returns how many workers there should be, for programs that start them ([explain.md](explain.md)): `wanted`, which is absent while `known` is false. It has limits of its own, `scale`."},
	{"GET /v2/:endpoint/job-take/:worker", "Hands the worker a job, with its `input`, `policy`, `webhook` and `s3Config`, or 204 after 20 s. This and the next five are RunPod's worker protocol ([workers.md](workers.md)). The connection ends with the answer, here and in all of them but the ping."},
	{"GET /v2/:endpoint/job-take-batch/:worker", "The same for several: an array of at most `?batch_size=` jobs, as many as there are at once, until their inputs have 32 MiB."},
	{"GET /v2/:endpoint/job-stop/:worker", "Returns the jobs that the worker is to stop, as `{\"jobsToStop\": [ID]}`, or 204 after 20 s."},
	{"GET /v2/:endpoint/ping/:worker", "Keeps the jobs in `?job_id=` (with commas between them) for another lease, and shows that the worker lives."},
	{"POST /v2/:endpoint/job-done/:worker/:id", "Takes a result, or progress: `{\"output\": X}`, `{\"error\": E}`, `{\"status\": \"IN_PROGRESS\", \"output\": P}`. 200 once it is on the disk, also for what is late or repeated: that is dropped. At most 20 MB; a larger one is a job that FAILED."},
	{"POST /v2/:endpoint/job-stream/:worker/:id", "Takes a chunk of the job's stream, verbatim. 200 once it is on the disk."},
	{"POST /v1/endpoints", "Makes an endpoint and its queue. `name`, `id` or `templateId` is required; what is not given is the default; `workersMax` 0 turns the fleet off. `driver`, `command`, `imageName`, `env`, `gpuCount`, `vcpuCount` and `memoryInGb` say how its workers are started, `scalerType`, `scalerValue`, `idleTimeout` (seconds), `workersMin` and `workersMax` how many."},
	{"GET /v1/endpoints", "Lists the endpoints. `?includeWorkers=true` adds their pods, `?includeTemplate=true` what they are made from."},
	{"GET /v1/endpoints/:id", "Shows an endpoint, with its webhook secret and without the secrets of `env`. `?includeWorkers=true` and `?includeTemplate=true` as in the list."},
	{"PATCH /v1/endpoints/:id", "Changes the fields that the body has."},
	{"POST /v1/endpoints/:id/update", "The same, as RunPod's older clients spell it."},
	{"DELETE /v1/endpoints/:id", "Removes an endpoint. While it has jobs this is refused; `?force=true` cancels them first. Its jobs go with it: an endpoint that is made again under its id has none of them."},
	{"POST /v1/endpoints/:id/pause", "Hands out no jobs for `durationMs`, 1000 to 31536000000, or until it is resumed, after 365 days at the latest. Jobs are accepted meanwhile, those that run go on ([explain.md](explain.md))."},
	{"POST /v1/endpoints/:id/resume", "Hands out jobs again. If it is not paused, nothing changes."},
	{"GET /v1/endpoints/:id/scaling", "Lists what the autoscaler decided, the newest first, with its reasons, at most `?limit=` (1 to 100, 20 unless given). No route has those before the last 100, though 1000 are kept for 7 days."},
	{"GET /v1/endpoints/:id/webhooks/deliveries", "Lists the attempts to deliver webhooks in the last 7 days, the newest first ([webhooks.md](webhooks.md)). `?job=` wants one job, `?since=` an instant or how long ago (`10m`), `?failed=true` leaves out what was delivered; `?limit=` is 1 to 500, 50 unless given. While `hasMore` is true, `?cursor=` brings the next page, which may be short, or empty, all the same."},
	{"POST /v1/endpoints/:id/webhooks/replay", "Sends webhooks again: that of a `job`, whatever became of it, or all that were given up `since` an instant, or how long ago (`10m`). Each begins again, with the same `webhook-id`."},
	{"GET /v1/endpoints/:id/webhooks/destinations", "Lists the receivers that keep failing or are paused."},
	{"POST /v1/endpoints/:id/webhooks/pause", "Keeps back what goes to a `destination` (scheme, host and port; an address will do), for at most 7 days."},
	{"POST /v1/endpoints/:id/webhooks/resume", "Sends to a paused `destination` again, also what was kept back."},
	{"POST /v1/endpoints/:id/webhooks/secret", "Makes a new webhook secret. The present one signs beside it for `overlapMs`, 24 h unless given, 30 days at most; 0 ends it at once."},
	{"GET /v1/endpoints/:id/workers", "Lists the workers that were let in to speak RunPod's worker protocol (`http`), and those that live and speak NATS (`nats`), with what they last said."},
	{"POST /v1/endpoints/:id/workers", "Lets such a worker in. Its token is in this answer and never again; the worker's earlier token is revoked. Without `id` one is made up. `flightline worker env` prints the environment that it needs ([workers.md](workers.md))."},
	{"DELETE /v1/endpoints/:id/workers/:worker", "Revokes the worker's token, everywhere within seconds."},
	{"POST /v1/endpoints/:id/workers/:worker/drain", "Gives the worker no more jobs; those that it has go on. The polls of a worker over HTTP are answered, and a new token lets it in again. A worker over NATS learns of it within 6 s, and leaves once it has no job."},
	{"POST /v1/pods", "Makes a pod ([pods.md](pods.md)) from `imageName` or `templateId`, or with `\"driver\":\"process\"` from `dockerStartCmd`; an autoscaler that has the driver starts it. Answers 201."},
	{"GET /v1/pods", "Lists the pods, of workers of endpoints only with `?includeWorkers=true`, and TERMINATED ones, of which the last 200 of an endpoint are kept for a day, only with `?desiredStatus=TERMINATED` or `?id=`. `computeType`, `cpuFlavorId`, `dataCenterId`, `desiredStatus`, `endpointId`, `gpuTypeId`, `id`, `imageName`, `name`, `networkVolumeId` and `templateId` keep those pods that have the value, or one of several if the parameter is repeated. There are 1000 in an answer at most (`?limit=`); the header `Link` names the next page."},
	{"GET /v1/pods/:pod", "Shows a pod. `?includeMachine=true`, `includeNetworkVolume`, `includeSavingsPlans` and `includeTemplate` add what it runs on, what is attached, what makes it cheaper, and what it was made from. A worker's pod is shown in any case."},
	{"PATCH /v1/pods/:pod", "Changes the fields that the body has, as of the pod's next start. `env` replaces all; a value `***` keeps the one that there is."},
	{"POST /v1/pods/:pod/update", "The same, as RunPod's older clients spell it."},
	{"POST /v1/pods/:pod/start", "Says that the pod should run. Of a worker the autoscaler decides that."},
	{"POST /v1/pods/:pod/stop", "Says that the pod should not run. A worker has `--worker-drain-timeout` (30 s) to complete the jobs that it has; then they are given back. `POST /v1/endpoints/:id/workers/:worker/drain` lets it complete them all."},
	{"POST /v1/pods/:pod/restart", "Ends what runs of the pod, and starts it again; an EXITED pod starts too. A container is a new one, with the same network volume."},
	{"POST /v1/pods/:pod/reset", "The same: a restart makes a new container already."},
	{"DELETE /v1/pods/:pod", "Ends the pod: it is TERMINATED, and readable for a day. A worker that its owner started gets no more jobs."},
	{"GET /v1/containerregistryauth", "Is an empty list, for RunPod's tools: images are pulled without credentials. For a private image, run `docker login` and `docker pull IMAGE` on each machine first."},
	{"GET /v1/billing/pods", "Is an empty list: Flightline bills nobody. The same for `/v1/billing/endpoints` and `/v1/billing/networkvolumes`."},
	{"GET /v1/billing/endpoints", "Is an empty list."},
	{"GET /v1/billing/networkvolumes", "Is an empty list."},
	{"POST /v1/templates", "Makes a template, from which pods and endpoints can be made. `name` is required."},
	{"GET /v1/templates", "Lists the templates, 1000 at most (`?limit=`); the header `Link` names the next page."},
	{"GET /v1/templates/:id", "Shows a template, without the values of its secrets."},
	{"PATCH /v1/templates/:id", "Changes the fields that the body has. Pods keep what they were made from."},
	{"POST /v1/templates/:id/update", "The same, as RunPod's older clients spell it."},
	{"DELETE /v1/templates/:id", "Deletes a template that no pod and no endpoint uses."},
	{"GET /v1/system", "Returns how the installation is: storage, streams, their durable consumers with what they have before them, the processes that serve a role, and `findings`, those of the doctor's checks that ask for nothing of each stream. It is some seconds old at most. Of the queues, the 20 with the most messages are listed; `?stream=` narrows the list to names with a text in them, in any case."},
	{"GET /v1/machines", "Lists the machines on which an autoscaler runs pods, with their GPUs and the pods that hold them, 1000 at most (`?limit=`); the header `Link` names the next page. See [gpus.md](gpus.md)."},
	{"POST /v1/machines/:machine/gpus/:gpu/quarantine", "Keeps pods off a GPU for `durationMs`, 1000 to 604800000, 1 h unless given, with a `reason` of at most 200 characters; its workers leave once they have no job. At the deadline the GPU is on probation: one worker at a time may be started on it. Answers with the GPU as `GET /v1/machines` does ([gpus.md](gpus.md#a-gpu-that-fails))."},
	{"POST /v1/machines/:machine/gpus/:gpu/restore", "Ends the quarantine of a GPU. If it has none, nothing changes."},
	{"POST /v1/networkvolumes", "Makes a network volume. `name` and `size` (GB) are required; `path` is where it is on the hosts."},
	{"GET /v1/networkvolumes", "Lists the network volumes, 1000 at most (`?limit=`); the header `Link` names the next page."},
	{"GET /v1/networkvolumes/:id", "Shows a network volume."},
	{"PATCH /v1/networkvolumes/:id", "Changes the fields that the body has. It never shrinks."},
	{"POST /v1/networkvolumes/:id/update", "The same, as RunPod's older clients spell it."},
	{"DELETE /v1/networkvolumes/:id", "Deletes a network volume that no pod uses, and nothing that it holds."},
	{"POST /v1/keys", "Makes an API key. The key itself is in this answer and never again. Scopes: `submit:ID`, `read:ID`, `admin:ID`, with `*` for all endpoints, `control`, and `pods` for a look at machines, pods, templates and network volumes."},
	{"GET /v1/keys", "Lists the keys without what is secret about them."},
	{"GET /v1/key", "Shows the key that asks, with its scopes. Any key may."},
	{"PATCH /v1/keys/:id", "Changes the fields of the key's `quota` that the body has; null is the default, 0 no bound ([operating.md](operating.md)). It holds everywhere within two seconds."},
	{"DELETE /v1/keys/:id", "Revokes a key, everywhere within seconds."},
	{"GET /", "Says what this server is: `name`, `version`, and the paths `openapi` and `health`. It needs no key."},
	{"GET /healthz", "Answers 200 as long as the process does, with `status`, `version`, `roles` and `checks`. It needs no key."},
	{"GET /readyz", "The same, but 503 while a check fails or the process stops: for balancers, which then send nobody here ([operating.md](operating.md)). It needs no key."},
	{"GET /openapi.json", "Describes all of this in the form of OpenAPI 3. It needs no key."},
}

const repeats = "With `Idempotency-Key` (1 to 255 visible ASCII characters) the same request, sent again within 24 hours with the same API key to whichever server, is the same job. Its answer has `Idempotent-Replayed: true`: run repeats its first answer, runsync has the result, and once the job is gone both have its last known status. Another body or operation under the key is refused with 422. At another endpoint, or with another API key, it is another job."

func waits(what, then string) string {
	return fmt.Sprintf("%s `?wait=` is how long in milliseconds, %s, %d unless given. %s",
		what, bounds(job.MinWait.Milliseconds(), job.MaxWait.Milliseconds()), job.DefaultWait.Milliseconds(), then)
}

func bounds(least, most int64) string { return fmt.Sprintf("%d to %d", least, most) }

// The document is what the services answer; -update rewrites it.
func TestGeneratedHTTP(t *testing.T) {
	s := start(t)
	got := document(t, s)
	testenv.Golden(t, *update, httpFile, got)
}

func document(t *testing.T, s *env) string {
	t.Helper()
	var doc strings.Builder
	doc.WriteString(`# The HTTP API

<!-- Generated by TestGeneratedHTTP off the running services and their golden files; ` + "`task gen`" + ` rewrites it. -->

` + "`/v2`" + ` is the queue API, which RunPod's clients speak; ` + "`/v1`" + ` makes endpoints and keys. The key goes into ` + "`Authorization`" + `, as
` + "`Bearer KEY`" + ` or bare. Every answer is JSON, success is 200 (204 where there is nothing to say), and errors are those of
[errors.md](errors.md); beneath ` + "`/v1`" + ` their text comes as ` + "`message`" + ` too, where RunPod's clients look. Each answer has an ` + "`X-Request-Id`" + `, except the 503 of a [connection over the bound](operating.md#connections). That of a submission has the job's id in ` + "`X-Job-Id`" + ` too; a 503 without it submitted nothing.
A permission ` + "`admin`" + ` includes submit and read; ` + "`control`" + ` is included in none, and includes ` + "`pods`" + `.

| method and path | needs | body at most |
|---|---|---|
`)
	routes := routesOf(t, s)
	examples := append(golden(t), controlExamples(t, s)...)
	for _, text := range texts {
		i := slices.IndexFunc(routes, func(r route) bool { return r.name() == text.name })
		if i < 0 {
			t.Errorf("%q is described, but no such route exists", text.name)
			continue
		}
		fmt.Fprintf(&doc, "| `%s` | %s | %s |\n", text.name, routes[i].needs, size(routes[i].body))
	}
	for _, r := range routes {
		if !slices.ContainsFunc(texts, func(text struct{ name, text string }) bool { return text.name == r.name() }) {
			t.Errorf("the route %q is not described", r.name())
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&doc, "\n## %s\n\n%s\n", text.name, text.text)
		examples = writeExamples(&doc, text.name, examples)
	}
	doc.WriteString("\n## Elsewhere\n\nWhat is answered where there is no route.\n")
	for _, e := range examples {
		writeExample(&doc, e)
	}
	return doc.String()
}

// example is a request and its answer, as a golden file has them.
type example struct{ method, path, text string }

// writeExamples writes those of a route and returns the rest. An endpoint that
// does not exist, or a key that does not, is shown once: with run.
func writeExamples(doc *strings.Builder, name string, examples []example) []example {
	methods, path, _ := strings.Cut(name, " /")
	pattern := regexp.MustCompile("^/" + regexp.MustCompile(`:[a-z]+`).ReplaceAllString(strings.Replace(path, "/+", "/.+", 1), `[^/?]+`) + `(\?.*)?$`)
	var rest []example
	for _, e := range examples {
		if slices.Contains(strings.Split(methods, ", "), e.method) && pattern.MatchString(e.path) {
			writeExample(doc, e)
			continue
		}
		rest = append(rest, e)
	}
	return rest
}

func writeExample(doc *strings.Builder, e example) {
	request, answer, _ := strings.Cut(e.text, "\n---\n")
	fmt.Fprintf(doc, "\n```http\n%s\n\n%s\n```\n", strings.TrimSpace(request), strings.TrimSpace(answer))
}

// golden reads the golden files of the queue API: successes first.
func golden(t *testing.T) []example {
	t.Helper()
	files, err := filepath.Glob(goldenPath)
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d golden files, %v, want those of services/api", len(files), err)
	}
	slices.SortStableFunc(files, func(a, b string) int {
		failure := func(f string) int { return strings.Count(filepath.Base(f), "error-") }
		return failure(a) - failure(b)
	})
	var found []example
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(data), "\n")
		method, path, _ := strings.Cut(first, " ")
		found = append(found, example{method, path, string(data)})
	}
	return found
}
