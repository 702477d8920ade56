package console

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"flightline/shared/client"
	"flightline/shared/job"
)

// walkKeyboard does with keys alone what there is to do: it signs in, cancels many jobs,
// retries one, pauses an endpoint, sends a webhook again, redrives a cause of failures, drains
// a worker, and signs out.
func walkKeyboard(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "typed"})
	p := s.newPage(t)
	p.visit("/ui/")
	keyField := func() bool { return p.focused(`e.matches("input[name=key]")`) }
	p.holds("the form to sign in has the focus", keyField)
	p.press(s.key + "\r")
	p.reads("h1", "Overview")
	typeJobs(t, s, p)
	typeEndpoint(t, s, p)
	typeFailures(t, s, p)
	typeWorkers(t, s, p)
	p.goTo("sign out")
	p.holds("the form to sign in has the focus", keyField)
}

// typeJobs cancels two of three jobs that wait.
func typeJobs(t *testing.T, s *site, p *page) {
	t.Helper()
	var ids []job.ID
	for range 3 {
		ids = append(ids, s.run(t, "typed", order{}, ""))
	}
	p.goTo("jobs typed")
	p.holds("three rows", func() bool { return p.count("#jobs-table tbody tr") == 3 })
	p.listens()
	for _, key := range []string{"j", "x", "j", "x", "c"} {
		p.press(key)
	}
	p.reads("h1", "Cancel 2 jobs?")
	p.pressOn("Cancel 2 jobs")
	p.reads("#batch-progress", "Done: 2 of 2")
	for _, id := range ids[1:] {
		if got := s.ended(t, "typed", id); got.Status != job.Cancelled {
			t.Errorf("job %s: got %s, want it cancelled", id, got.Status)
		}
	}
	p.goTo(string(ids[2]))
	p.reads("#job-head", "cancelled")
}

// typeEndpoint pauses the endpoint, changes a setting and resumes it.
func typeEndpoint(t *testing.T, s *site, p *page) {
	t.Helper()
	p.goTo("typed")
	p.reads("h1", "typed")
	p.pressOn("Pause")
	p.reads("#notice", "typed is paused")
	p.pressOn("Settings")
	p.reads("h1", "Settings of typed")
	p.focusOn("#f-name")
	p.press("by keys\r")
	p.reads("#notice", "1 setting")
	e, err := s.client.Endpoints().Get(t.Context(), "typed")
	if err != nil || e.Fleet.PausedUntil.IsZero() || e.Name != "by keys" {
		t.Errorf("got %q paused until %v, %v, want it paused and renamed", e.Name, e.Fleet.PausedUntil, err)
	}
	p.pressOn("Resume")
	p.reads("#notice", "hands out jobs again")
}

// typeFailures queues the jobs of a cause again, retries one of another, and has a webhook
// sent again that failed.
func typeFailures(t *testing.T, s *site, p *page) {
	t.Helper()
	var broken atomic.Bool
	broken.Store(true)
	var came atomic.Int64
	url := receiver(t, func() int {
		if broken.Load() {
			return 502
		}
		came.Add(1)
		return 200
	})
	s.workWith(t, "typed", "typed-1", 4, func(o order) string {
		if broken.Load() {
			return o.Fail
		}
		return ""
	})
	one := s.run(t, "typed", order{Fail: "no lens 1"}, "")
	other := s.run(t, "typed", order{Fail: "KeyError"}, url+"/hook")
	for _, id := range []job.ID{one, other} {
		s.ended(t, "typed", id)
	}
	p.goTo("webhooks typed")
	p.reads("#webhooks-deliveries", "502")
	broken.Store(false)
	p.pressOn("Replay")
	p.reads("#notice", "sent again")
	eventually(t, "the webhook arrives", func() bool { return came.Load() > 0 })

	p.goTo("failures")
	p.focusOn(`input[name=q]`)
	p.press("no lens\r")
	p.holds("the filter", func() bool { return p.count("#failures-groups tbody tr") == 1 })
	p.pressOn("Redrive…")
	p.reads("h1", "Queue 1 job again?")
	p.pressOn("Queue 1 job again")
	p.reads("#batch-progress", "Done: 1 of 1")
	p.goTo(string(other))
	p.reads("#job-head", "KeyError")
	p.listens()
	p.press("r")
	p.reads("#notice", "IN_QUEUE")
	for _, id := range []job.ID{one, other} {
		if got := s.ended(t, "typed", id); got.Status != job.Completed {
			t.Errorf("job %s: got %s, want it completed", id, got.Status)
		}
	}
}

// typeWorkers drains the endpoint's worker, which the filter finds.
func typeWorkers(t *testing.T, s *site, p *page) {
	t.Helper()
	p.goTo("workers")
	p.focusOn("#w-endpoint")
	p.press("typed\r")
	p.holds("the filter", func() bool { return strings.Contains(p.address(), "endpoint=typed") })
	p.reads("#workers-table", "typed-1")
	p.listens()
	p.press("j")
	p.press("\r")
	p.reads("h1", "typed-1")
	p.pressOn("Drain")
	p.reads("#notice", "takes no more jobs")
	eventually(t, "the worker has left", func() bool {
		list, err := s.client.Workers().List(t.Context(), "typed")
		return err == nil && len(list) == 0
	})
}

// goTo opens what was typed in the palette, or does it, as the keyboard does.
func (p *page) goTo(text string) {
	p.t.Helper()
	p.listens()
	p.do("press Ctrl K", chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	p.holds("the palette has the focus", func() bool { return p.focused(`e.matches("#palette input")`) })
	p.press(text + "\r")
}

// listens waits until the scripts of a new page run, which listen to keys.
func (p *page) listens() {
	p.t.Helper()
	p.holds("the page listens to keys", func() bool { return p.count("#palette-open:not([hidden])") == 1 })
}

// focused reports whether JavaScript is true of the element e that has the focus.
func (p *page) focused(test string) bool {
	is, err := eval[bool](p, `(e => Boolean(e && (`+test+`)))(document.activeElement)`)
	return err == nil && is
}

// pressOn presses the tabulator until a button or link with this text has the focus, and then
// Enter.
func (p *page) pressOn(text string) {
	p.t.Helper()
	p.tabTo(text, `e.matches("a, button, summary") && e.innerText.trim() === `+quoted(text))
	p.press("\r")
}
