package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"flightline/shared/client"
	"flightline/shared/job"
)

const (
	// livePromise is within which time an open page shows what was done over the API.
	livePromise = time.Second
	// liveRounds is how often each change is made: the median counts.
	liveRounds = 3
)

// watchFor has the page note when the text is in the element, from now on.
func (p *page) watchFor(selector, text string) {
	p.t.Helper()
	script := fmt.Sprintf(`(() => {
		window.seenAt = 0;
		window.watching?.disconnect();
		const look = () => { if (!window.seenAt && document.querySelector(%s)?.textContent.includes(%s)) window.seenAt = Date.now() };
		window.watching = new MutationObserver(look);
		window.watching.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
		look();
		return window.seenAt;
	})()`, quoted(selector), quoted(text))
	if at, err := eval[int64](p, script); err != nil || at != 0 {
		p.t.Fatalf("watch %s for %q: got %d, %v, want it not there yet", selector, text, at, err)
	}
}

// seenAt is when the page noted it.
func (p *page) seenAt(what string) time.Time {
	p.t.Helper()
	var at int64
	p.holds(what, func() bool {
		var err error
		at, err = eval[int64](p, "window.seenAt")
		return err == nil && at > 0
	})
	return time.UnixMilli(at)
}

// fetchTime is how long the page takes to be fetched.
func (p *page) fetchTime() time.Duration {
	p.t.Helper()
	ms, err := eval[float64](p, `(async () => { const from = performance.now(); await (await fetch(location.href)).text(); return performance.now() - from })()`)
	if err != nil {
		p.t.Fatal(err)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// change is something that is done over the API while a page is open.
type change struct {
	path           string // of the page
	do             func() error
	selector, text string // where it is shown, and what
}

// A change is shown by an open page within a second, by itself. The times are logged.
func walkLive(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "lively"})
	cancel := func(id job.ID) func() error {
		return func() error { _, err := s.client.Cancel(t.Context(), "lively", id); return err }
	}
	p := s.signIn(t, s.key)
	for _, screen := range []struct {
		name    string
		prepare func(round int) change
	}{
		{"overview", func(round int) change {
			submit := func() error { s.run(t, "lively", order{}, ""); return nil }
			return change{"/ui/", submit, `tr:has(a[href="/ui/e/lively"]) td[data-label=Waiting]`, fmt.Sprint(round + 1)}
		}},
		{"endpoint", func(round int) change {
			minutes := time.Duration(round+1) * time.Hour
			if _, err := s.client.Endpoints().Resume(t.Context(), "lively"); err != nil {
				t.Fatal(err)
			}
			pause := func() error { _, err := s.client.Endpoints().Pause(t.Context(), "lively", minutes); return err }
			return change{"/ui/e/lively", pause, "#endpoint-now", "Paused until"}
		}},
		{"jobs", func(int) change {
			id := s.run(t, "lively", order{}, "")
			return change{"/ui/e/lively/jobs", cancel(id), `tr[data-key="` + string(id) + `"]`, "cancelled"}
		}},
		{"job", func(int) change {
			id := s.run(t, "lively", order{}, "")
			return change{"/ui/e/lively/jobs/" + string(id), cancel(id), "#job-head", "cancelled"}
		}},
		{"workers", func(round int) change {
			id := fmt.Sprintf("drained-%d", round)
			s.endpoint(t, client.EndpointSpec{ID: id})
			s.work(t, id, id, 1)
			held := s.run(t, id, order{Hold: true}, "") // it drains until its job ends
			t.Cleanup(func() { _, _ = s.client.Cancel(context.Background(), id, held) })
			eventually(t, "the job runs", func() bool {
				j, err := s.client.Status(t.Context(), id, held)
				return err == nil && j.Status == job.InProgress
			})
			drain := func() error { _, err := s.client.Workers().Drain(t.Context(), id, id); return err }
			return change{"/ui/workers?endpoint=" + id, drain, "#workers-table", "draining"}
		}},
		{"events", func(int) change {
			id := s.run(t, "lively", order{}, "")
			return change{"/ui/events?endpoint=lively&type=job.cancelled", cancel(id), "#events-tail", string(id)}
		}},
		{"system", func(round int) change {
			name := fmt.Sprintf("made live %d", round)
			create := func() error {
				_, err := s.client.Keys().Create(t.Context(), client.KeySpec{Name: name, Scopes: []string{"read:lively"}})
				return err
			}
			return change{"/ui/system", create, "#system-keys", name}
		}},
	} {
		var took, fetched []time.Duration
		for round := range liveRounds {
			shown, fetch := p.change(screen.prepare(round))
			took, fetched = append(took, shown), append(fetched, fetch)
		}
		slices.Sort(took)
		slices.Sort(fetched)
		shown, fetch := took[liveRounds/2], fetched[liveRounds/2]
		t.Logf("%s: shown after %v, median %v; the page is fetched in %v", screen.name, took, shown, fetch)
		if shown > livePromise { // what decides is how busy the machine is: no failure
			t.Logf("%s: that is later than the %v of a quiet machine", screen.name, livePromise)
		}
	}
}

// change opens the page, makes the change and returns how long after the answer the page
// shows it, and how long the page takes to be fetched.
func (p *page) change(c change) (shown, fetched time.Duration) {
	p.t.Helper()
	p.visit(c.path)
	p.reads("#live-state", "live")
	fetched = p.fetchTime()
	p.holds("the page without "+c.text, func() bool { return !strings.Contains(p.text(c.selector), c.text) })
	p.watchFor(c.selector, c.text)
	if err := c.do(); err != nil {
		p.t.Fatal(err)
	}
	answered := time.Now()
	at := p.seenAt(c.path + " shows " + c.text)
	return max(0, at.Sub(answered)).Round(time.Millisecond), fetched.Round(time.Millisecond)
}

// scriptedStreams makes the first stream of a job's output a refusal, as of a proxy whose server
// is away, and the second one chunk and an end for a cause. All else is as it was.
const scriptedStreams = `(() => {
	const real = EventSource;
	let asked = 0;
	window.EventSource = function (url) {
		if (!url.endsWith("/stream")) return new real(url);
		const source = Object.assign(new EventTarget(), { readyState: ++asked === 1 ? real.CLOSED : real.OPEN, close() {} });
		const say = (type, data) => source.dispatchEvent(new MessageEvent(type, { data }));
		setTimeout(() => {
			if (asked === 1) return say("error");
			say("message", '{"output":"a chunk"}');
			say("end", '{"error":"The API does not answer."}');
		}, 50);
		return source;
	};
	window.EventSource.CLOSED = real.CLOSED;
})()`

// A stream of output that is refused is asked for again, and what ended it too early is shown.
func walkStream(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "streamed"})
	id := s.run(t, "streamed", order{}, "")
	p := s.signIn(t, s.key)
	script := cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: scriptedStreams}
	if _, err := chromedp.Call(p.ctx, cdppage.AddScriptToEvaluateOnNewDocument, script); err != nil {
		t.Fatal(err)
	}
	p.visit("/ui/e/streamed/jobs/" + string(id))
	p.reads("#live-output", "a chunk")
	p.reads("#live-rate", "The API does not answer.")
}
