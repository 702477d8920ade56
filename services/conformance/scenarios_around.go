package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

func counting() []Scenario {
	const section = "Health record"
	return []Scenario{
		{Name: "health", Section: section, Shows: "`/health` has the five counts of jobs and two of workers, all integers", play: health},
		{Name: "health-counts", Section: section, Shows: "`/health` counts a job that waits", Needs: []string{needIdle}, when: aloneBeforeWork, play: healthCounts},
	}
}

func health(p *play) {
	a := p.get(p.w.cfg.Endpoint, "/health")
	p.want("/health", a, http.StatusOK)
	for group, names := range map[string][]string{
		"jobs": {"completed", "failed", "inProgress", "inQueue", "retried"}, "workers": {"idle", "running"},
	} {
		counts, _ := a.object[group].(map[string]any)
		for _, name := range names {
			p.wantCount("/health "+group, counts, name)
		}
	}
}

func healthCounts(p *play) {
	endpoint := p.w.cfg.Idle
	id := p.submit(endpoint, task{}, nil)
	waiting := func(a answer) bool {
		counts, _ := a.object["jobs"].(map[string]any)
		return p.wantCount("/health jobs", counts, "inQueue") >= 1
	}
	p.eventually("/health until a job waits", p.w.cfg.FactTimeout, func() answer { return p.get(endpoint, "/health") }, waiting)
	p.abandon(endpoint, id)
}

// hooking is webhooks.
func hooking() []Scenario {
	const section = "Events"
	return []Scenario{
		{Name: "webhook", Section: section, Shows: "the webhook is called once when the job completes, with its id and status", Needs: []string{needHooks}, play: webhook},
		{Name: "webhook-failed", Section: section, Shows: "the webhook is called also for a job that failed", Needs: []string{needHooks, needFailing}, play: webhookFailed},
		{Name: "webhook-retries", Section: section, Shows: "a call that fails is made up to 2 more times, 10 s apart; the job is as it was", Needs: []string{needHooks}, play: webhookRetries},
	}
}

// hook opens an address for this scenario alone, and returns it with the field that a
// submission names it by. answers are the statuses of the first calls, 200 those of others.
func (p *play) hook(name string, answers ...int) (*hook, map[string]any) {
	h := p.w.hooks.open(name, answers...)
	return h, map[string]any{"webhook": h.url}
}

// awaitDeliveries waits until the hook has at least n deliveries, and returns all of them.
func (p *play) awaitDeliveries(h *hook, n int, within time.Duration) []delivery {
	for late := time.Now().Add(within); !p.done(); p.sleep(pollInterval) {
		if got := h.deliveries(); len(got) >= n {
			return got
		}
		p.failIf(time.Now().After(late), "webhook: got %d calls within %v, want %d", len(h.deliveries()), within, n)
	}
	return nil
}

// wantDelivery fails unless the body of the delivery has the job's id and the status.
func (p *play) wantDelivery(d delivery, id, status string) {
	got := decoded(d.body)
	p.failIf(got["id"] != id || got["status"] != status, "webhook: got %.200s, want the id %s and %s", d.body, id, status)
}

func webhook(p *play) {
	const mark = "conform-hook-secret"
	h, more := p.hook("once")
	more["s3Config"] = map[string]any{"accessSecret": mark}
	id := p.submit(p.w.cfg.Endpoint, task{}, more)
	if got := p.awaitDeliveries(h, 1, p.w.cfg.FactTimeout); !p.done() {
		p.wantDelivery(got[0], id, "COMPLETED")
		p.failIf(strings.Contains(string(got[0].body), mark), "webhook: got the secret of s3Config")
	}
	p.sleep(12 * time.Second) // a second call would have come
	n := len(h.deliveries())
	p.failIf(n != 1, "webhook: got %d calls, want 1: the first was answered 200", n)
}

func webhookFailed(p *play) {
	endpoint := p.w.cfg.Failing
	h, more := p.hook("failed")
	id := p.submit(endpoint, task{Fail: "as the input says"}, more)
	if got := p.awaitDeliveries(h, 1, 2*p.w.cfg.FactTimeout); !p.done() {
		p.wantDelivery(got[0], id, "FAILED")
	}
}

func webhookRetries(p *play) {
	endpoint := p.w.cfg.Endpoint
	h, more := p.hook("retries", http.StatusInternalServerError, http.StatusInternalServerError, http.StatusInternalServerError)
	id := p.submit(endpoint, task{}, more)
	got := p.awaitDeliveries(h, 3, 2*p.w.cfg.FactTimeout)
	for i := 1; i < len(got); i++ {
		gap := got[i].at.Sub(got[i-1].at)
		p.failIf(gap < 9*time.Second || gap > 20*time.Second, "webhook: got attempt %d %v after the one before, want 10 s", i+1, gap.Round(time.Millisecond))
	}
	p.sleep(12 * time.Second)
	n := len(h.deliveries())
	p.failIf(n != 3, "webhook: got %d attempts, want 3", n)
	p.wantField("/status", p.get(endpoint, "/status/"+id), "status", "COMPLETED")
}

// clients is what the published clients send and need beyond the contract.
func clients() []Scenario {
	const section = "Clients"
	return []Scenario{
		{Name: "client-post", Section: section, Shows: "`/status` and `/stream` answer POST too", play: clientPost},
		{Name: "client-status-sync", Section: section, Shows: "`/status-sync?wait=`, by GET and by POST, holds until the job ends", play: clientStatusSync},
		{Name: "client-stream", Section: section, Shows: "with a JSON content type `/stream` answers an object with `status` and `stream`; at the end it is terminal and empty", Needs: []string{needStreaming}, play: clientStream},
		{Name: "client-methods", Section: section, Shows: "a method that an operation does not have is 405, with `Allow`", play: clientMethods},
		{Name: "client-lists", Section: section, Shows: "`/v1/containerregistryauth` and `/v1/billing/…` answer lists", Needs: []string{needRest}, play: clientLists},
		{Name: "client-pod", Section: section, Shows: "a pod that has `image` or `gpu.count` has the same in `imageName` and `gpuCount`", Needs: []string{needRest}, play: clientPod},
		{Name: "client-errors", Section: section, Shows: "errors are JSON objects, too, with an `error` that is a text", play: clientErrors},
	}
}

func clientPost(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.submit(endpoint, task{}, nil)
	p.awaitStatus(endpoint, id, "COMPLETED")
	p.wantField("POST /status", p.post(endpoint, "/status/"+id, ""), "status", "COMPLETED")
	p.want("POST /stream", p.post(endpoint, "/stream/"+id, ""), http.StatusOK)
}

func clientStatusSync(p *play) {
	const hold = 30 * time.Second
	endpoint := p.w.cfg.Endpoint
	for _, method := range []string{"GET", "POST"} {
		id := p.submit(endpoint, task{SleepMs: 1000}, nil)
		ask := func() answer {
			sent := time.Now()
			a := p.send(call{method: method, path: fmt.Sprintf("/v2/%s/status-sync/%s?wait=%d", endpoint, id, hold.Milliseconds())})
			p.wantField(method+" /status-sync", a, "status", "IN_QUEUE", "IN_PROGRESS", "COMPLETED")
			took := time.Since(sent)
			p.failIf(a.text("status") != "COMPLETED" && took < hold-time.Second, "%s /status-sync: got %s after %v, want the job's end or an answer after %v", method, a, took.Round(time.Millisecond), hold)
			return a
		}
		p.eventually(method+" /status-sync until COMPLETED", p.w.cfg.FactTimeout, ask, func(a answer) bool { return a.text("status") == "COMPLETED" })
	}
}

func clientStream(p *play) {
	endpoint := p.w.cfg.Streaming
	do := task{Chunks: []json.RawMessage{[]byte(`{"output":1}`), []byte(`{"output":2}`)}}
	id, chunks := p.submit(endpoint, do, nil), 0
	ask := func() answer {
		a := p.send(call{method: "GET", path: "/v2/" + endpoint + "/stream/" + id, header: map[string]string{"Content-Type": "application/json"}})
		p.wantField("/stream", a, "status", "IN_QUEUE", "IN_PROGRESS", "COMPLETED")
		_, is := a.object["stream"].([]any)
		p.failIf(!is, "/stream: got %s, want an object with stream", a)
		return a
	}
	p.eventually("/stream until COMPLETED and empty", 2*p.w.cfg.FactTimeout, ask, func(a answer) bool {
		list, _ := a.object["stream"].([]any)
		chunks += len(list)
		return len(list) == 0 && a.text("status") == "COMPLETED"
	})
	p.failIf(chunks == 0, "/stream: got no chunk")
}

func clientErrors(p *play) {
	endpoint := p.w.cfg.Endpoint
	for what, c := range map[string]call{
		"400": {method: "POST", path: "/v2/" + endpoint + "/run", body: "no JSON"},
		"401": {method: "GET", path: "/v2/" + endpoint + "/health", header: map[string]string{"Authorization": ""}},
		"404": {method: "GET", path: "/v2/" + endpoint + "/status/conform-unknown"},
	} {
		a := p.send(c)
		kind := a.header.Get("Content-Type")
		p.failIf(a.text("error") == "" || !strings.HasPrefix(kind, "application/json"), "%s: got %s of type %q, want a JSON object with an error", what, a, kind)
	}
}

func clientMethods(p *play) {
	endpoint := p.w.cfg.Endpoint
	for method, path := range map[string]string{"DELETE": "/run", "PUT": "/health"} {
		a := p.send(call{method: method, path: "/v2/" + endpoint + path})
		p.want(method+" "+path, a, http.StatusMethodNotAllowed)
		p.failIf(a.header.Get("Allow") == "", "%s %s: got %s without Allow", method, path, a)
	}
}

func clientLists(p *play) {
	for _, path := range []string{"/v1/containerregistryauth", "/v1/billing/pods", "/v1/billing/endpoints", "/v1/billing/networkvolumes"} {
		a := p.send(call{method: "GET", path: path, rest: true})
		p.want(path, a, http.StatusOK)
		_, is := a.value.([]any)
		p.failIf(!is, "%s: got %s, want a list", path, a)
	}
}

func clientPod(p *play) {
	a := p.lookUp(p.podID(), "")
	p.want("/v1/pods/ID", a, http.StatusOK)
	gpu, _ := a.object["gpu"].(map[string]any)
	for name, want := range map[string]any{"imageName": a.object["image"], "gpuCount": gpu["count"]} {
		got := a.object[name]
		p.failIf(got != want, "/v1/pods/ID: got %s %v, want %v", name, got, want)
	}
}
