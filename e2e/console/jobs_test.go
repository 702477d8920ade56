package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"flightline/shared/client"
	"flightline/shared/job"
)

// live is within which time an open page shows what happened; the machine that runs the tests
// may be busy, so they allow for more than the second that is promised.
const live = 5 * time.Second

func walkOverview(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "waits", Name: new("<b>waits</b>")})
	p := s.signIn(t, s.key)
	p.reads("#overview-endpoints", "waits")
	p.reads("#overview-endpoints", "<b>waits</b>") // as text
	p.accessible()
	s.run(t, "waits", order{}, "")
	p.holdsWithin(live, "the job that waits", func() bool {
		return strings.Contains(p.text("#overview-attention"), "no worker lives; jobs that wait: 1")
	})
	for !strings.Contains(p.text("tr.at"), "waits") { // other tests have endpoints too
		if !p.pressed("j") {
			t.Fatal("no row of the table is that of the endpoint")
		}
	}
	p.press("\r")
	p.reads("h1", "waits")
	p.reads("#endpoint-now", "no worker lives")
	p.accessible()
}

func walkEndpoint(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "managed"})
	p := s.signIn(t, s.key)
	p.visit("/ui/e/managed")
	p.clickText("main", "Pause")
	p.reads("#notice", "managed is paused")
	e, err := s.client.Endpoints().Get(t.Context(), "managed")
	if err != nil || e.Fleet.PausedUntil.IsZero() {
		t.Errorf("got %v, %v, want it paused", e, err)
	}
	p.accessible()
	p.clickText("main", "Resume")
	p.reads("#notice", "hands out jobs again")
	p.clickText("main", "Settings")
	p.reads("h1", "Settings of managed")
	p.fill("#f-workersMax", "7")
	p.accessible()
	p.clickText("main", "Save")
	p.reads("#notice", "1 setting")
	if e, err := s.client.Endpoints().Get(t.Context(), "managed"); err != nil || e.WorkersMax != 7 {
		t.Errorf("got %v, %v, want workersMax 7", e, err)
	}
	for range 3 {
		s.run(t, "managed", order{}, "")
	}
	p.holdsWithin(live, "the jobs that wait", func() bool { return strings.Contains(p.text("#endpoint-now"), "3") })
	p.clickText("main", "Purge…")
	p.reads("#purge-count", "3 jobs would be cancelled")
	p.accessible()
	p.clickText("main", "Cancel all waiting jobs")
	p.reads("#notice", "3 waiting jobs")
	for _, span := range []string{"Day", "Week"} {
		p.clickText("main", span)
		p.reads("#endpoint-charts", "Attempts that ended")
	}
	reader := s.signIn(t, s.scoped(t, "read:managed"))
	reader.visit("/ui/e/managed")
	reader.reads("#endpoint-settings", "control")
	if n := reader.count("main form[method=post], a[href$='/purge']"); n != 0 {
		t.Errorf("a reader has %d forms", n)
	}
}

func walkJobs(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "many"})
	p := s.signIn(t, s.key)
	p.visit("/ui/e/many/jobs")
	p.reads("#jobs-table", "No such jobs")
	p.accessible()
	var ids []job.ID
	for range 4 {
		ids = append(ids, s.run(t, "many", order{Fail: "no memory"}, ""))
	}
	p.holdsWithin(live, "four rows", func() bool { return p.count("#jobs-table tbody tr") == 4 })
	p.accessible()
	for _, key := range []string{"j", "x", "j", "j", "k", "x"} { // with the keys alone: the first two rows
		p.press(key)
	}
	p.reads("#selected", "2 selected")
	p.press("c")
	p.reads("h1", "Cancel 2 jobs?")
	p.accessible()
	p.clickText("main", "Cancel 2 jobs")
	p.reads("#batch-progress", "Done: 2 of 2")
	p.accessible()
	for _, id := range ids[2:] {
		if got := s.ended(t, "many", id); got.Status != job.Cancelled {
			t.Errorf("job %s: got %s, want it cancelled", id, got.Status)
		}
	}
	s.work(t, "many", "many-1", 2)
	for _, id := range ids[:2] {
		s.ended(t, "many", id)
	}
	p.visit("/ui/e/many/jobs")
	p.clickText(".chips", "Failed")
	p.holds("two that failed", func() bool { return p.count("#jobs-table tbody tr") == 2 })
	p.reads("#jobs-table", "no memory")
	p.width(380)
	p.fits()
	p.width(1440)
	p.click("input[name=all]")
	p.clickText("main", "Retry…")
	p.reads("h1", "Retry 2 jobs?")
	p.clickText("main", "Retry 2 jobs")
	p.reads("#batch-progress", "Done: 2 of 2")
	p.visit("/ui/e/many/jobs?q=" + string(ids[0][len(ids[0])-6:]))
	p.holds("the one that was asked for", func() bool { return p.count("#jobs-table tbody tr") == 1 })
}

func walkJob(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "single"})
	p := s.signIn(t, s.key)
	s.work(t, "single", "single-1", 2)
	id := s.run(t, "single", order{Hold: true, Emits: 3}, "")
	p.visit("/ui/j/" + string(id))
	p.reads("#job-head", "running")
	p.reads("#live-output", "0\n1\n2")
	p.reads("#job-timeline", "attempt 1, run 1")
	p.accessible()
	p.visit("/ui/e/single/jobs/" + string(id)) // survives a reload
	p.reads("#live-output", "0\n1\n2")
	walkKeys(p)
	p.command("cancel")
	p.reads("#notice", "CANCELLED")
	p.reads("#job-head", "cancelled")
	failed := s.run(t, "single", order{Fail: "no memory"}, "")
	s.ended(t, "single", failed)
	p.visit("/ui/")
	p.command("jobs single")
	p.reads("#jobs-table", string(failed))
	p.command(string(failed))
	p.reads("#job-head", "no memory")
	p.accessible()
	p.clickText("#job-head", "what it was given, and as code")
	p.reads("#job-input", "no memory")
	p.clickText("main", "Submit such a job as code")
	p.reads("[data-snippet]", "no memory")
	p.accessible()
	p.visit("/ui/e/single/jobs/" + string(failed))
	p.reads("#job-head", "no memory")
	p.width(380)
	p.fits()
	p.width(1440)
	p.press("r")
	p.reads("#notice", "IN_QUEUE")
	p.reads("#job-events", "job.queued")
	p.holds("it failed again", func() bool { return strings.Contains(p.text("#job-timeline"), "attempt 2, run 1") })
}

// submissions notes of each form that is sent whether the page prevents it, and sends none.
const submissions = `(() => {
	window.prevented = [];
	document.addEventListener("submit", (e) => { window.prevented.push(e.defaultPrevented); e.preventDefault() });
})()`

// A form that is on its way is not sent again, also after a live update has replaced it.
func walkSentOnce(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "once"})
	s.work(t, "once", "once-1", 1)
	id := s.run(t, "once", order{Fail: "no memory"}, "")
	s.ended(t, "once", id)
	p := s.signIn(t, s.key)
	p.visit("/ui/e/once/jobs/" + string(id))
	p.reads("#job-head", "no memory")
	p.reads("#live-state", "live")
	if _, err := eval[chromedp.Void](p, submissions); err != nil {
		t.Fatal(err)
	}
	p.clickText("#job-head", "Retry")
	if _, err := s.client.Retry(t.Context(), "once", id); err != nil { // what the form does on its way
		t.Fatal(err)
	}
	p.holds("it failed again", func() bool { return strings.Contains(p.text("#job-timeline"), "attempt 2, run 1") })
	p.clickText("#job-head", "Retry")
	if got, err := eval[[]bool](p, "window.prevented"); err != nil || !slices.Equal(got, []bool{false, true}) {
		t.Errorf("got %v, %v, want the second one prevented", got, err)
	}
}

// command opens what was typed in the palette, or does it.
func (p *page) command(text string) {
	p.t.Helper()
	p.holds("the palette", func() bool {
		p.click("#palette-open")
		return p.count("#palette[open]") == 1
	})
	p.fill("#palette input", text)
	p.press("\r")
}

// walkKeys looks at the list of keys, which one of them opens.
func walkKeys(p *page) {
	p.t.Helper()
	p.press("?")
	p.reads("#keys[open]", "next and previous row")
	p.accessible()
	p.press("\r") // the button to close has the focus
	p.holds("the list is closed", func() bool { return p.count("#keys[open]") == 0 })
}

// How fast chunks come is shown, also after a reload, and at the end.
func walkRate(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "paced"})
	s.work(t, "paced", "paced-1", 1)
	p := s.signIn(t, s.key)
	id := s.run(t, "paced", order{Emits: 600, Paced: true}, "")
	p.visit("/ui/e/paced/jobs/" + string(id))
	p.reads("#live-rate", "tokens/s")
	p.visit("/ui/e/paced/jobs/" + string(id))
	p.reads("#live-rate", "tokens/s")
	if _, err := s.client.Cancel(t.Context(), "paced", id); err != nil {
		t.Fatal(err)
	}
	p.reads("#job-head", "cancelled")
	p.reads("#live-rate", "tokens/s")
	p.visit("/ui/e/paced/jobs/" + string(id))
	p.clickText("main", "Streamed output")
	p.reads("#live-rate", "tokens/s")
}

func walkTry(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "tried"})
	s.work(t, "tried", "tried-1", 2)
	p := s.signIn(t, s.key)
	p.visit("/ui/e/tried/try")
	p.accessible()
	p.fill("#input", `{"text":"from the playground","emits":2}`)
	p.clickText("main", "Submit such a job as code")
	p.reads("[data-snippet]", "from the playground")
	p.clickText("#try-form", "Run")
	p.reads("#try-job", "completed")
	p.reads("#try-job", "from the playground")
	p.reads("#live-output", "0\n1")
	if got := p.text("#try-form"); !strings.Contains(got, "Run") {
		t.Errorf("got %q", got)
	}
	p.accessible()
	p.visit("/ui/e/tried/try")
	p.holds("the last input", func() bool {
		got, err := eval[string](p, `document.querySelector("#input").value`)
		return err == nil && strings.Contains(got, "from the playground")
	})
	p.visit("/ui/e/tried/try?mode=chat")
	p.fill("#model", "m")
	p.fill("#message", "hello there")
	p.clickText("main", "Submit such a job as code")
	for _, want := range []string{"/v2/tried/openai/v1/chat/completions", "hello there", "from openai import OpenAI"} {
		p.reads("[data-snippet]", want)
	}
	p.accessible()
	p.clickText("#try-form", "Run")
	p.reads("#try-job", "completed")
}
