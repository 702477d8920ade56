package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"flightline/shared/retry"
)

// pollInterval is the pause between two polls.
const pollInterval = 100 * time.Millisecond

// play is one run of a scenario. After its first failure nothing more is sent, and
// every method does nothing: the first failure is what the report has.
type play struct {
	ctx     context.Context //nolint:containedctx // a play is one call
	w       *world
	err     error
	skipped string
}

func (p *play) failf(format string, args ...any) {
	if p.err == nil && p.skipped == "" {
		p.err = fmt.Errorf(format, args...)
	}
}

// failIf fails if what is wanted is not so.
func (p *play) failIf(wrong bool, format string, args ...any) {
	if wrong {
		p.failf(format, args...)
	}
}

func (p *play) done() bool { return p.err != nil || p.skipped != "" }

// send sends a request and returns its answer, an empty one after a failure.
func (p *play) send(c call) answer {
	if p.done() {
		return answer{}
	}
	a, err := p.w.send(p.ctx, c)
	if err != nil {
		p.failf("%s %s: %w", c.method, c.path, err)
	}
	return a
}

func (p *play) get(endpoint, rest string) answer {
	return p.send(call{method: "GET", path: "/v2/" + endpoint + rest})
}

func (p *play) post(endpoint, rest, body string) answer {
	return p.send(call{method: "POST", path: "/v2/" + endpoint + rest, body: body})
}

// want fails unless the answer has one of the HTTP statuses. what names the request.
func (p *play) want(what string, a answer, statuses ...int) {
	p.failIf(!slices.Contains(statuses, a.status), "%s: got %s, want %s", what, a, strings.Trim(strings.ReplaceAll(fmt.Sprint(statuses), " ", " or "), "[]"))
}

// wantField fails unless the answer is 200 and the field name has one of the texts.
func (p *play) wantField(what string, a answer, name string, texts ...string) {
	p.want(what, a, http.StatusOK)
	p.failIf(!slices.Contains(texts, a.text(name)), "%s: got %s, want %s %s", what, a, name, strings.Join(texts, " or "))
}

// wantCount fails unless the field is a JSON integer of at least 0, and returns it.
func (p *play) wantCount(what string, in map[string]any, name string) int64 {
	number, _ := in[name].(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !p.done() && (err != nil || n < 0) {
		p.failf("%s: got %s %v (%T), want an integer of at least 0", what, name, in[name], in[name])
	}
	return n
}

// wantJSON fails unless got and want are the same JSON value.
func (p *play) wantJSON(what string, got any, want string) {
	var value any
	if err := json.Unmarshal([]byte(want), &value); err != nil {
		p.failf("%s: %w", what, err)
	}
	text, wanted := asJSON(got), asJSON(value)
	p.failIf(text != wanted, "%s: got %.200s, want %.200s", what, text, wanted)
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sleep waits for d, or until the scenario's time is over, which is a failure.
func (p *play) sleep(d time.Duration) {
	if p.done() {
		return
	}
	if err := retry.Sleep(p.ctx, d); err != nil {
		p.failf("after %v of waiting: %w", d, err)
	}
}

// eventually polls until ok accepts the answer. It fails with the last answer.
func (p *play) eventually(what string, within time.Duration, ask func() answer, ok func(answer) bool) answer {
	var a answer
	for late := time.Now().Add(within); !p.done(); p.sleep(pollInterval) {
		if a = ask(); p.done() || ok(a) {
			return a
		}
		p.failIf(time.Now().After(late), "%s: got %s for %v", what, a, within)
	}
	return a
}

// body is a submission's body: the input, and other fields by name.
func body(t task, more map[string]any) string {
	all := maps.Clone(more)
	if all == nil {
		all = map[string]any{}
	}
	all["input"] = map[string]any{"conform": t}
	return asJSON(all)
}

// submit queues a job and returns its id.
func (p *play) submit(endpoint string, t task, more map[string]any) string {
	a := p.post(endpoint, "/run", body(t, more))
	p.want("/run", a, http.StatusOK)
	p.failIf(a.text("id") == "", "/run: got %s, want an id", a)
	return a.text("id")
}

// awaitStatus polls until the job has the status, and fails if it ends with another.
func (p *play) awaitStatus(endpoint, id, status string) answer {
	return p.awaitStatusWithin(endpoint, id, status, p.w.cfg.FactTimeout)
}

func (p *play) awaitStatusWithin(endpoint, id, status string, within time.Duration) answer {
	ask := func() answer {
		a := p.get(endpoint, "/status/"+id)
		p.wantStatusOrEarlier(a, status)
		return a
	}
	return p.eventually("/status until "+status, within, ask, func(a answer) bool { return a.text("status") == status })
}

// wantStatusOrEarlier fails unless the answer of /status has the status, or one before it.
func (p *play) wantStatusOrEarlier(a answer, status string) {
	p.want("/status", a, http.StatusOK)
	got := a.text("status")
	p.failIf(got != status && got != "IN_QUEUE" && got != "IN_PROGRESS", "/status: got %s, want %s", a, status)
}

// awaitGone polls until the job is not found, and fails if that is sooner than early after
// submitted, or later than late from now.
func (p *play) awaitGone(endpoint, id string, submitted time.Time, early, late time.Duration) {
	ask := func() answer {
		a := p.get(endpoint, "/status/"+id)
		p.want("/status", a, http.StatusOK, http.StatusNotFound)
		return a
	}
	p.eventually("/status until 404", late, ask, func(a answer) bool { return a.status == http.StatusNotFound })
	after := time.Since(submitted)
	p.failIf(after < early, "/status: got 404 after %v, want the job for %v", after.Round(time.Millisecond), early)
}

// abandon cancels a job that the scenario leaves behind, whatever happened.
func (p *play) abandon(endpoint, id string) {
	if id == "" || p.ctx.Err() != nil {
		return
	}
	_, _ = p.w.send(p.ctx, call{method: "POST", path: "/v2/" + endpoint + "/cancel/" + id}) // it ends by itself too
}
