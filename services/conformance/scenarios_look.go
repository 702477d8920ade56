package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

func looking() []Scenario {
	const record = "Job record"
	return []Scenario{
		{Name: "status", Section: record, Shows: "`/status` of a completed job has its id, status, whole times and output", play: status},
		{Name: "states", Section: "States and transitions", Shows: "a job is IN_QUEUE, IN_PROGRESS and COMPLETED, in this order, and stays so", Needs: []string{needSlow}, play: states},
		{Name: "failed", Section: "States and transitions", Shows: "a handler's error ends the job as FAILED; its record is still a 200", Needs: []string{needFailing}, play: failed},
		{Name: "failed-output", Section: "States and transitions", Shows: "what a handler puts out beside its error is the output of the FAILED job", Needs: []string{needWorker}, play: failedOutput},
		{Name: "times", Section: record, Shows: "`executionTime` is about what the handler took", Needs: []string{needWorker}, play: times},
		{Name: "status-ttl", Section: sectionEndpoints, Shows: "`/status?ttl=` sets the job's lifetime; then it is 404; text is 400", play: statusTTL},
	}
}

func streaming() []Scenario {
	const chunk = "Stream chunk"
	return []Scenario{
		{Name: "stream", Section: chunk, Shows: "`/stream` answers a JSON array of chunks, each with its `output`", Needs: []string{needStreaming}, play: stream},
		{Name: "stream-order", Section: chunk, Shows: "chunks come once, in order, with their `metrics`, and while the job runs", Needs: []string{needWorker}, play: streamOrder},
		{Name: "stream-split", Section: "Limits", Shows: "an output of over 1 MB comes as several chunks of at most 1 MB each", Needs: []string{needWorker}, play: streamSplit},
	}
}

func status(p *play) {
	endpoint := p.w.cfg.Endpoint
	id := p.submit(endpoint, task{}, nil)
	a := p.awaitStatus(endpoint, id, "COMPLETED")
	p.wantField("/status", a, "id", id)
	p.wantCount("/status", a.object, "delayTime")
	p.wantCount("/status", a.object, "executionTime")
	p.wantJSON("/status output", a.object["output"], `{"conform":{}}`)
}

func states(p *play) {
	endpoint := p.w.cfg.Slow
	order := []string{"IN_QUEUE", "IN_PROGRESS", "COMPLETED"}
	id, at := p.submit(endpoint, task{SleepMs: 4000}, nil), 0
	seen := map[string]bool{"IN_QUEUE": true} // submit saw a 200; run looks at its status
	ask := func() answer { return p.get(endpoint, "/status/"+id) }
	p.eventually("/status until COMPLETED", 2*p.w.cfg.FactTimeout, ask, func(a answer) bool {
		p.wantField("/status", a, "status", order[at:]...)
		for i, name := range order {
			if name == a.text("status") {
				at, seen[name] = max(at, i), true
			}
		}
		return at == len(order)-1
	})
	p.failIf(!seen["IN_PROGRESS"], "/status: never IN_PROGRESS, want it while the handler runs")
	p.wantField("/status again", ask(), "status", "COMPLETED")
}

func failed(p *play) {
	endpoint := p.w.cfg.Failing
	a := p.awaitStatus(endpoint, p.submit(endpoint, task{Fail: "as the input says"}, nil), "FAILED")
	p.wantCount("/status", a.object, "delayTime")
	p.wantCount("/status", a.object, "executionTime")
	reason, is := a.object["error"]
	p.failIf(is && a.text("error") == "", "/status: got the error %v, want a text", reason)
}

func failedOutput(p *play) {
	endpoint := p.w.cfg.Endpoint
	a := p.awaitStatus(endpoint, p.submit(endpoint, task{Fail: "as the input says", Beside: true}, nil), "FAILED")
	p.wantField("/status", a, "error", "as the input says")
	p.wantJSON("/status: the output", a.object["output"], `{"details":"as the input says"}`)
}

func times(p *play) {
	endpoint := p.w.cfg.Endpoint
	a := p.awaitStatus(endpoint, p.submit(endpoint, task{SleepMs: 1500}, nil), "COMPLETED")
	// A second of it may be the way to and from the worker; the upper bound
	// only distinguishes seconds from milliseconds.
	n := p.wantCount("/status", a.object, "executionTime")
	p.failIf(n < 1000 || n > 60_000, "/status: got executionTime %d, want about 1500", n)
}

func statusTTL(p *play) {
	endpoint, submitted := p.w.cfg.Endpoint, time.Now()
	id := p.submit(endpoint, task{}, nil)
	p.awaitStatus(endpoint, id, "COMPLETED")
	p.want("/status?ttl=soon", p.get(endpoint, "/status/"+id+"?ttl=soon"), http.StatusBadRequest)
	p.want("/status?ttl=12000", p.get(endpoint, "/status/"+id+"?ttl=12000"), http.StatusOK)
	p.awaitGone(endpoint, id, submitted, 10*time.Second, p.w.cfg.FactTimeout)
}

// chunks reads the array form until the job is COMPLETED and nothing more
// comes; first is when the first chunk came.
func (p *play) chunks(endpoint, id string) (all []map[string]any, running bool) {
	for late := time.Now().Add(2 * p.w.cfg.FactTimeout); !p.done() && time.Now().Before(late); {
		ended := p.get(endpoint, "/status/"+id).text("status")
		a := p.get(endpoint, "/stream/"+id)
		p.want("/stream", a, http.StatusOK)
		list, is := a.value.([]any)
		p.failIf(!is, "/stream: got %s, want a JSON array", a)
		for _, one := range list {
			chunk, _ := one.(map[string]any)
			_, has := chunk["output"]
			p.failIf(!has, "/stream: got the chunk %.100s, want an object with output", asJSON(one))
			all = append(all, chunk)
		}
		running = running || len(list) > 0 && p.get(endpoint, "/status/"+id).text("status") == "IN_PROGRESS"
		if len(list) == 0 && ended == "COMPLETED" {
			return all, running
		}
		if len(list) == 0 {
			p.sleep(pollInterval)
		}
	}
	p.failf("/stream: the job does not end")
	return all, running
}

func stream(p *play) {
	endpoint := p.w.cfg.Streaming
	do := task{Chunks: []json.RawMessage{[]byte(`{"output":{"n":1}}`)}}
	all, _ := p.chunks(endpoint, p.submit(endpoint, do, nil))
	p.failIf(len(all) == 0, "/stream: got no chunk")
}

func streamOrder(p *play) {
	endpoint, want := p.w.cfg.Streaming, `[{"metrics":{"scenario":"stream","stream_index":0},"output":{"n":0}},{"output":{"n":1}},{"output":{"n":2}}]`
	var do task
	if err := json.Unmarshal([]byte(want), &do.Chunks); err != nil {
		p.failf("%w", err)
	}
	do.SleepMs = 5000
	all, running := p.chunks(endpoint, p.submit(endpoint, do, nil))
	p.wantJSON("/stream", all, want)
	p.failIf(!running, "/stream: the chunks came when the job had ended, want them while it runs")
}

func streamSplit(p *play) {
	const size, most = 5 << 19, 1 << 20
	endpoint := p.w.cfg.Streaming
	all, _ := p.chunks(endpoint, p.submit(endpoint, task{Bytes: size}, nil))
	var joined strings.Builder
	for _, chunk := range all {
		text, _ := chunk["output"].(string)
		joined.WriteString(text)
		p.failIf(len(text) > most, "/stream: got a chunk of %d bytes, want at most %d", len(text), most)
	}
	p.failIf(joined.String() != strings.Repeat("x", size), "/stream: got %d bytes in %d chunks, want the %d that were posted", joined.Len(), len(all), size)
}

func decoded(raw []byte) map[string]any {
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return object
}
