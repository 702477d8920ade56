package contract

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flightline/shared/testenv/program"
)

const (
	second      = time.Second
	millisecond = time.Millisecond
	// window is what the contract's rates are counted over.
	window = 10 * second
)

// rateRow is a row of the contract's table of rates.
type rateRow struct {
	operation, method, path string // {id} is that of a job that waits
	requests, concurrent    int
	// header and held make a request that the server holds for a few seconds,
	// "" if the operation holds none.
	header map[string]string
	held   string
}

func rateTable() []rateRow {
	return []rateRow{
		{operation: "runsync", method: "POST", path: "/runsync", requests: 2000, concurrent: 400, held: "/runsync?wait=6000"},
		{operation: "run", method: "POST", path: "/run", requests: 1000, concurrent: 200, held: "/run", header: map[string]string{"Prefer": "wait=6"}},
		{operation: "status", method: "GET", path: "/status/nobody", requests: 2000, concurrent: 400, held: "/status-sync/{id}?wait=6000"},
		{operation: "stream", method: "GET", path: "/stream/nobody", requests: 2000, concurrent: 400, held: "/stream/{id}?wait=6000"},
		{operation: "cancel", method: "POST", path: "/cancel/nobody", requests: 100, concurrent: 20},
		{operation: "retry", method: "POST", path: "/retry/nobody", requests: 100, concurrent: 20},
		{operation: "purge-queue", method: "POST", path: "/purge-queue", requests: 2},
		{operation: "requests", method: "GET", path: "/requests", requests: 10, concurrent: 2},
		{operation: "explain", method: "GET", path: "/explain/nobody", requests: 100, concurrent: 20},
		{operation: "scale", method: "GET", path: "/scale", requests: 100, concurrent: 20},
	}
}

// rates is the contract's table of rates with the numbers that it has, and
// what bounds them. Several instances share them, so the numbers are the same.
func rates() map[string]scenario {
	all := map[string]scenario{
		"the dynamic rule": raised,
		"an endpoint's own limit, then none": func(s *run) {
			p := s.endpoint(`"limits":{"retry":{"requests":4,"concurrent":0}}`)
			if got := p.burst(1, "POST", "/retry/nobody", 6); got != 4 {
				s.Errorf("got %d let in, want 4", got)
			}
			s.send(call{method: "PATCH", path: "/v1/endpoints/" + p.id, body: `{"limits":{"retry":{"requests":0,"concurrent":0}}}`})
			p.eventually("no limit holds", func() bool { return p.burst(1, "POST", "/retry/nobody", 6) == 6 })
		},
		"cancels at once": func(s *run) {
			p := s.endpoint(`"limits":{"cancel":{"requests":100000,"concurrent":2}}`)
			var refused atomic.Int64
			p.eventually("some are refused", func() bool {
				p.side(60, func() {
					if p.do("POST", "/cancel/nobody", "").status == http.StatusTooManyRequests {
						refused.Add(1)
					}
				})
				return refused.Load() > 0
			})
			p.want(p.do("POST", "/cancel/nobody", ""), http.StatusNotFound)
		},
		"without a key nothing counts": func(s *run) {
			p := s.endpoint("")
			for range 20 {
				a := p.send(call{method: "POST", path: p.path("/purge-queue"), header: map[string]string{"Authorization": "nobody"}})
				p.want(a, http.StatusUnauthorized)
			}
			p.want(p.do("POST", "/purge-queue", ""), http.StatusOK)
		},
	}
	for _, row := range rateTable() {
		all[fmt.Sprintf("%s: %d in 10 s, then 429 and recovery", row.operation, row.requests)] = row.rate
		if row.held != "" {
			all[fmt.Sprintf("%s: %d at once, then 429 and recovery", row.operation, row.concurrent)] = row.atOnce
		}
	}
	return all
}

// bursts lets one of the large bursts run at a time: they take a processor.
var bursts = make(chan struct{}, 1)

// rate sends as many requests as the row allows, which all count though they
// are no good, and some more, which are refused; when the first one is 10 s
// old there is room again.
func (r rateRow) rate(s *run) {
	p := s.endpoint("")
	began, let := p.alone(min(8, max(1, r.concurrent/2)), r)
	took := time.Since(began)
	if took > window {
		s.Skipf("this machine took %v for %d requests", took, r.requests)
	}
	if let != r.requests {
		s.Errorf("got %d of %d let in, want all", let, r.requests)
	}
	more := s.bases // each instance has nothing left
	var a answer
	for range more {
		a = p.wrong(r.method, r.path, "{}")
		if passed := time.Since(began); passed > window { // there may be room again
			s.Skipf("this machine took %v for %d requests and %d more", passed, r.requests, len(more))
		}
		p.want(a, http.StatusTooManyRequests, "code", "too_many_requests")
	}
	if _, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || a.header.Get("RateLimit") == "" {
		s.Errorf("got %v, want Retry-After and RateLimit", a.header)
	}
	<-time.After(time.Until(began.Add(took + window)))
	for range more {
		a = p.wrong(r.method, r.path, "{}")
	}
	if a.status == http.StatusTooManyRequests {
		s.Errorf("got %d %s after %v", a.status, a.raw, time.Since(began))
	}
}

// alone is burst for all that a row allows, one row at a time.
func (p *testEndpoint) alone(side int, r rateRow) (began time.Time, let int) {
	p.t.Helper()
	bursts <- struct{}{}
	defer func() { <-bursts }()
	began = time.Now()
	return began, p.burst(side, r.method, r.path, r.requests)
}

// burst sends n requests, side of them at once, and returns how many were let in.
func (p *testEndpoint) burst(side int, method, path string, n int) int {
	p.t.Helper()
	var let, left atomic.Int64
	left.Store(int64(n))
	p.side(side, func() {
		for left.Add(-1) >= 0 {
			if p.send(call{method: method, path: p.path(path), body: "{}", unchecked: true}).status != http.StatusTooManyRequests {
				let.Add(1)
			}
		}
	})
	return int(let.Load())
}

// side runs f n times side by side.
func (p *testEndpoint) side(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

// atOnce holds as many requests as the row allows; one more is refused on each
// instance, and once they are answered there is room again.
func (r rateRow) atOnce(s *run) {
	p := s.endpoint(fmt.Sprintf(`"limits":{%q:{"requests":100000,"concurrent":%d}}`, r.operation, r.concurrent))
	id := p.submit(`{}`, "").text("id")
	held := call{method: r.method, path: p.path(strings.ReplaceAll(r.held, "{id}", id)), header: r.header}
	if r.method == "POST" {
		held.body = `{"input":{}}`
	}
	one := call{method: r.method, path: p.path(r.path), body: map[string]string{"POST": "{}"}[r.method], wrong: true}
	r.hold(p, held, func() {
		p.everywhere("one more is refused", func() bool { return p.send(one).status == http.StatusTooManyRequests })
	})
	if a := p.send(one); a.status == http.StatusTooManyRequests {
		s.Errorf("afterwards: got %d %s", a.status, a.raw)
	}
}

// hold sends as many requests as the row allows at once, and calls meanwhile
// before they are answered.
func (r rateRow) hold(p *testEndpoint, held call, meanwhile func()) {
	p.t.Helper()
	bursts <- struct{}{}
	defer func() { <-bursts }()
	ctx, cancel := context.WithTimeout(p.t.Context(), program.Soon)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	var answered atomic.Int64
	for range r.concurrent {
		wg.Go(func() {
			a, err := p.try(ctx, held)
			// One of meanwhile was in its place, or JetStream stood still for 5 s.
			for err == nil && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable) {
				a, err = p.try(ctx, held)
			}
			if first := answered.Add(1) == 1; first && (err != nil || a.status != http.StatusOK) {
				p.t.Errorf("held: got %d %.200s, %v", a.status, a.raw, err)
			}
		})
	}
	if meanwhile(); answered.Load() > 0 {
		p.t.Errorf("%d of the held were answered too early to tell", answered.Load())
	}
}

// raised is the dynamic rule: running workers × requestsPerWorker, if that is
// more than the base.
func raised(s *run) {
	p := s.endpoint(`"requestsPerWorker":1000,"limits":{"cancel":{"requests":4,"concurrent":0}}`)
	if got := p.burst(1, "POST", "/cancel/nobody", 8); got != 4 {
		s.Errorf("without a worker: got %d let in, want 4", got)
	}
	p.work(1)
	p.until(p.submit(`{"forever":true}`, "").text("id"), "IN_PROGRESS")
	p.eventually("the running worker raises the limit", func() bool { return p.burst(1, "POST", "/cancel/nobody", 8) == 8 })
}

// shared waits until each instance knows that it has a part of the limits only.
func (p *testEndpoint) shared() {
	p.t.Helper()
	const whole = 2000
	p.everywhere("the limits are shared", func() bool {
		_, left, _ := strings.Cut(p.status("nobody").header.Get("RateLimit"), ";r=")
		left, _, _ = strings.Cut(left, ";")
		n, err := strconv.Atoi(left)
		return err == nil && n < whole/len(p.bases)
	})
}
