package conformance

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const sectionEndpoints = "Endpoints"

func submitting() []Scenario {
	return []Scenario{
		{Name: "run", Section: sectionEndpoints, Shows: "`/run` answers 200 with an id of its own and IN_QUEUE", play: run},
		{Name: "runsync", Section: sectionEndpoints, Shows: "`/runsync` answers 200 with a `sync-` id, COMPLETED, whole times and the output", play: runsync},
		{Name: "runsync-wait", Section: sectionEndpoints, Shows: "`wait=1000` ends the request before the job ends; `/status` has it on", Needs: []string{needSlow}, play: runsyncWait},
		{Name: "runsync-wait-bounds", Section: "Limits", Shows: "`wait` is from 1000 to 300000: 999, 300001 and text are 400", play: waitBounds},
		{Name: "worker-gets-job", Section: "Job submission body", Shows: "the worker gets the id, the input, also an empty one, and `s3Config`", Needs: []string{needWorker}, play: workerGets},
		{Name: "s3config-hidden", Section: "S3 configuration", Shows: "no answer holds the secret of `s3Config`", play: s3Hidden},
		{Name: "unknown-fields", Section: "Job submission body", Shows: "a field that the contract does not name is no error", play: unknownFields},
	}
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func run(p *play) {
	ids := map[string]bool{}
	for range 2 {
		a := p.post(p.w.cfg.Endpoint, "/run", body(task{}, nil))
		p.wantField("/run", a, "status", "IN_QUEUE")
		id := a.text("id")
		p.failIf(!validID.MatchString(id) || strings.HasPrefix(id, "sync-") || ids[id], "/run: got the id %q, want one of its own, of letters, digits, - and _, without sync-", id)
		ids[a.text("id")] = true
	}
}

func runsync(p *play) {
	a := p.post(p.w.cfg.Endpoint, "/runsync?wait=60000", body(task{}, nil))
	p.wantField("/runsync", a, "status", "COMPLETED")
	id := a.text("id")
	p.failIf(!validID.MatchString(id) || !strings.HasPrefix(id, "sync-"), "/runsync: got the id %q, want sync-…", id)
	p.wantCount("/runsync", a.object, "delayTime")
	p.wantCount("/runsync", a.object, "executionTime")
	p.wantJSON("/runsync output", a.object["output"], `{"conform":{}}`)
}

func runsyncWait(p *play) {
	endpoint, began := p.w.cfg.Slow, time.Now()
	a := p.post(endpoint, "/runsync?wait=1000", body(task{SleepMs: 6000}, nil))
	took := time.Since(began)
	p.wantField("/runsync?wait=1000", a, "status", "IN_QUEUE", "IN_PROGRESS")
	p.failIf(took < 900*time.Millisecond || took > 15*time.Second, "/runsync?wait=1000: got an answer after %v, want it after 1 s", took.Round(time.Millisecond))
	id := a.text("id")
	p.failIf(!strings.HasPrefix(id, "sync-"), "/runsync?wait=1000: got the id %q, want sync-…", id)
	p.awaitStatus(endpoint, a.text("id"), "IN_PROGRESS")
	p.abandon(endpoint, a.text("id"))
}

func waitBounds(p *play) {
	for wait, status := range map[string]int{
		"999": 400, "0": 400, "-1": 400, "300001": 400, "soon": 400, "1.5": 400, "1000": 200, "300000": 200,
	} {
		a := p.post(p.w.cfg.Endpoint, "/runsync?wait="+wait, body(task{}, nil))
		p.want("/runsync?wait="+wait, a, status)
	}
}

func workerGets(p *play) {
	endpoint := p.w.cfg.Endpoint
	s3 := map[string]any{"accessId": "id", "accessSecret": "conform-secret", "bucketName": "b", "endpointUrl": "https://s3.example"}
	for input, more := range map[string]string{`{"deep":{"n":[1,2.5,"é"]}}`: `,"s3Config":` + asJSON(s3), `{}`: ""} {
		a := p.post(endpoint, "/run", `{"input":`+input+more+`}`)
		p.want("/run", a, http.StatusOK)
		id := a.text("id")
		p.wantJSON("output of "+input, p.awaitStatus(endpoint, id, "COMPLETED").object["output"], input)
		raw := p.w.work.took(id)
		job := decoded(raw)
		p.wantJSON("the worker's input", job["input"], input)
		p.failIf(job["id"] != id, "the worker's id: got %v, want %s", job["id"], id)
		if more != "" {
			p.wantJSON("the worker's s3Config", job["s3Config"], asJSON(s3))
		}
	}
}

func s3Hidden(p *play) {
	const mark = "conform-s3-secret"
	endpoint, more := p.w.cfg.Endpoint, map[string]any{"s3Config": map[string]any{"accessId": mark, "accessSecret": mark}}
	first := p.post(endpoint, "/runsync", body(task{}, more))
	p.want("/runsync", first, http.StatusOK)
	second := p.post(endpoint, "/run", body(task{}, more))
	p.want("/run", second, http.StatusOK)
	last := p.awaitStatus(endpoint, second.text("id"), "COMPLETED")
	for what, a := range map[string]answer{"/runsync": first, "/run": second, "/status": last, "/stream": p.get(endpoint, "/stream/"+second.text("id"))} {
		p.failIf(strings.Contains(string(a.raw), mark), "%s: got the secret of s3Config", what)
	}
}

func unknownFields(p *play) {
	a := p.post(p.w.cfg.Endpoint, "/run", body(task{}, map[string]any{"conformUnknown": map[string]int{"n": 1}}))
	p.want("/run with an unknown field", a, http.StatusOK)
}

// large is a submission of so many bytes.
func large(size int) string {
	const head, tail = `{"input":{"conform":{"brief":true},"pad":"`, `"}}`
	return fmt.Sprint(head, strings.Repeat("x", size-len(head)-len(tail)), tail)
}
