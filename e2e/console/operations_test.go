package console

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

// A person finds out why jobs fail and queues them again, without the mouse at the end.
func walkFailures(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "fails"})
	p := s.signIn(t, s.key)
	p.visit("/ui/failures?endpoint=fails")
	p.reads("main", "No failure matches")
	p.accessible()
	var broken atomic.Bool
	broken.Store(true)
	s.workWith(t, "fails", "fails-1", 4, func(o order) string {
		if broken.Load() {
			return o.Fail
		}
		return ""
	})
	var ids []job.ID
	for _, text := range []string{"no file /data/1.bin", "no file /data/2.bin", "no file /data/3.bin", "KeyError: 'seed'"} {
		ids = append(ids, s.run(t, "fails", order{Fail: text}, ""))
	}
	p.reads("#failures-groups", "no file /data/") // live, without a reload
	p.reads("#failures-groups", "KeyError")
	p.holds("three of one cause", func() bool { return strings.Contains(p.text("#failures-groups"), "4 failures of 2 causes") })
	p.accessible()

	p.visit("/ui/failures?q=keyerror")
	p.holds("the filter", func() bool { return p.count("#failures-groups tbody tr") == 1 })
	p.visit("/ui/failures?endpoint=fails&q=no+file")
	broken.Store(false)
	p.clickText("#failures-groups", "Redrive…")
	p.reads("h1", "Queue 3 jobs again?")
	p.accessible()
	p.press("\t")
	p.focusOn("form.actions button")
	p.press("\r")
	p.reads("#batch-progress", "Done: 3 of 3")
	for _, id := range ids[:3] {
		if got := s.ended(t, "fails", id); got.Status != job.Completed {
			t.Errorf("job %s: got %s, want it completed", id, got.Status)
		}
	}
	if got := s.ended(t, "fails", ids[3]); got.Status != job.Failed {
		t.Errorf("the job of another cause: got %s, want it as it was", got.Status)
	}
	reader := s.signIn(t, s.scoped(t, "read:fails"))
	reader.visit("/ui/failures")
	reader.reads("#failures-groups", "KeyError")
	if text := reader.text("main"); strings.Contains(text, "Redrive") {
		t.Errorf("a key that may read has a button to redrive: %s", text)
	}
}

func walkWorkers(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "works"})
	p := s.signIn(t, s.key)
	p.visit("/ui/workers?endpoint=works")
	p.reads("#workers-table", "No worker matches")
	s.work(t, "works", "works-1", 2)
	p.reads("#workers-table", "works-1") // live
	p.reads("#workers-table", "1.2.3")
	p.accessible()
	id := s.run(t, "works", order{Hold: true}, "")
	p.reads("#workers-table", "1 of 2")
	p.press("j")
	p.press("\r")
	p.reads("h1", "works-1")
	p.reads("#worker-state", string(id))
	p.reads("#worker-log", "holds "+string(id))
	p.accessible()
	p.visit("/ui/e/works/jobs/" + string(id))
	p.clickText("#job-head", "what its workers printed")
	p.reads("#job-lines", "holds "+string(id))
	p.accessible()
	p.visit("/ui/workers/works-1?endpoint=works")
	p.clickText("main", "Drain")
	p.reads("#notice", "takes no more jobs")
	eventually(t, "the worker drains", func() bool {
		list, err := s.client.Workers().List(t.Context(), "works")
		return err == nil && len(list) == 1 && list[0].Draining
	})
	p.reads("#worker-state", "draining")
	if p.count("form[action$='/drain']") != 0 {
		t.Error("a draining worker has a button to drain it")
	}
	if _, err := s.client.Cancel(t.Context(), "works", id); err != nil {
		t.Fatal(err)
	}
	p.reads("#worker-state", "sends no heartbeats")
	p.reads("#worker-jobs", string(id))
	p.reads("#worker-jobs", "cancelled")
	reader := s.signIn(t, s.scoped(t, "read:works"))
	s.work(t, "works", "works-2", 1)
	reader.visit("/ui/workers/works-2")
	reader.reads("#worker-state", "idle")
	if reader.count("form[action$='/drain']") != 0 {
		t.Error("a key that may read has a button to drain")
	}
}

func walkMachines(t *testing.T, s *site) {
	p := s.signIn(t, s.key)
	p.visit("/ui/machines")
	p.reads("#machines-map", "process")
	p.accessible()
	p.visit("/ui/machines?q=no-such-machine")
	p.reads("#machines-map", "No machine matches")
	reader := s.signIn(t, s.scoped(t, "read:*"))
	reader.visit("/ui/machines")
	reader.reads("body", "needs the scope pods or control")
	reader.forgive() // 403
}

func walkScaling(t *testing.T, s *site) {
	p := s.signIn(t, s.key)
	if _, err := s.client.Endpoints().Create(t.Context(), client.EndpointSpec{
		ID: "scales", WorkersMax: new(1), Fleet: client.FleetSpec{Driver: "process", Command: []string{"sh", "-c", "exit 3"}},
	}); err != nil {
		t.Fatal(err)
	}
	p.visit("/ui/e/scales/scaling")
	s.run(t, "scales", order{}, "")
	p.reads("#scaling-decisions", "0 → 1") // live
	p.holds("a chart", func() bool { return p.count("#scaling-decisions svg.chart") == 1 })
	p.accessible()
	p.visit("/ui/e/scales/scaling?reason=no-such-reason")
	p.reads("#scaling-decisions", "No decision with this reason")
	if err := s.client.Endpoints().Delete(t.Context(), "scales", true); err != nil {
		t.Fatal(err)
	}
}

func walkWebhooks(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "calls", WebhookRetries: []time.Duration{time.Second}})
	s.work(t, "calls", "calls-1", 4)
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
	p := s.signIn(t, s.key)
	p.visit("/ui/e/calls/webhooks")
	p.reads("#webhooks-deliveries", "No webhook was sent")
	p.accessible()
	id := s.run(t, "calls", order{}, url+"/hook")
	p.reads("#webhooks-deliveries", "502") // live
	p.reads("#webhooks-deliveries", url+"/hook")
	p.accessible()
	broken.Store(false)
	p.visit("/ui/e/calls/webhooks?failed=true&job=" + string(id))
	p.click(`button[aria-label="Replay the webhook of job ` + string(id) + `"]`)
	p.reads("#notice", "sent again")
	eventually(t, "the webhook arrives", func() bool { return came.Load() > 0 })
	p.reads("#webhooks-deliveries", "delivered")

	p.clickText("main", "Keep webhooks to a receiver back")
	p.fill("#d-to", url)
	p.fill("#d-why", "under repair")
	p.press("\r")
	p.reads("#webhooks-destinations", "under repair")
	p.accessible()
	list, err := s.client.Webhooks("calls").Destinations(t.Context())
	if err != nil || len(list) != 1 || !list[0].Paused {
		t.Errorf("got %+v, %v, want the receiver paused", list, err)
	}
	p.clickText("#webhooks-destinations", "Resume")
	p.reads("#notice", "go out again")
	p.holds("no receiver is paused", func() bool { return p.count("#webhooks-destinations li") == 0 })

	p.clickText("main", "Rotate the secret…")
	p.reads("h1", "Make a new secret")
	p.accessible()
	p.clickText("main", "Make a new secret")
	p.reads("h1", "The new secret")
	e, err := s.client.Endpoints().Get(t.Context(), "calls")
	if err != nil || strings.TrimSpace(p.text("#secret")) != e.WebhookSecret {
		t.Errorf("got %q, %v, want the endpoint's secret", p.text("#secret"), err)
	}
}

func walkEvents(t *testing.T, s *site) {
	s.endpoint(t, client.EndpointSpec{ID: "happens"})
	s.work(t, "happens", "happens-1", 1)
	p := s.signIn(t, s.key)
	p.visit("/ui/events?endpoint=happens")
	p.reads("#events-tail", "No event matches")
	id := s.run(t, "happens", order{Fail: "no way"}, "")
	p.reads("#events-tail", string(id)) // live
	p.reads("#events-tail", "failed")
	p.reads("#events-tail", "no way")
	p.accessible()
	p.visit("/ui/events?endpoint=happens&type=job.queued")
	p.holds("one event", func() bool { return p.count("#events-tail tbody tr") == 1 })
	p.visit("/ui/events")
	p.reads("#events-tail", string(id))
	other := s.signIn(t, s.scoped(t, "read:fails"))
	other.visit("/ui/events?job=" + string(id))
	other.reads("#events-tail", "No event matches")
}

func walkSystem(t *testing.T, s *site) {
	p := s.signIn(t, s.key)
	s.endpoint(t, client.EndpointSpec{ID: "stored"})
	p.visit("/ui/system")
	p.reads("#system-processes", "recorder")
	p.reads("#system-streams", "EVENTS")
	p.reads("#system-findings", "found nothing wrong")
	p.accessible()
	p.width(380)
	p.fits()
	p.width(1440)
	p.visit("/ui/system?stream=jobs_stored")
	p.holds("one queue", func() bool {
		return p.count("#system-streams tbody tr") == 1 && p.count("#system-consumers tbody tr") == 2
	})
	s.run(t, "stored", order{}, "")
	p.holds("the lag of its consumer, live", func() bool {
		return strings.TrimSpace(p.text("#system-consumers tbody tr:first-child td[data-label=Pending]")) == "1"
	})
	p.visit("/ui/system?stream=no-such-stream")
	p.reads("#system-streams", "No stream matches")
	p.visit("/ui/system")
	p.clickText("main", "Create a key")
	p.reads("main", "Scopes")
	p.fill("#k-name", "made in the console")
	p.fill("#k-scopes", "read:*")
	p.press("\r")
	p.reads("h1", "The new key")
	key := strings.TrimSpace(p.text("#secret"))
	made, err := client.New(s.url, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Overview(t.Context(), client.OverviewQuery{}); err != nil {
		t.Errorf("the new key: %v", err)
	}
	p.clickText("main", "Back to the system")
	p.reads("#system-keys", "made in the console")
	if strings.Contains(p.text("body"), key) {
		t.Error("the key is shown again")
	}
	p.click(`a[aria-label^="Revoke the key made in the console"]`)
	p.reads("h1", "Revoke made in the console")
	p.accessible()
	p.clickText("main", "Revoke the key")
	p.reads("#notice", "revoked")
	eventually(t, "the key opens nothing", func() bool {
		_, err := made.Overview(t.Context(), client.OverviewQuery{})
		return err != nil
	})
	reader := s.signIn(t, s.scoped(t, "read:*"))
	reader.visit("/ui/system")
	reader.reads("main", "flightline key create NAME --scope control")
	if reader.count("form[action='/ui/system/keys']") != 0 || reader.count("#system-keys tr") != 0 || reader.count("#system-streams tr") != 0 {
		t.Error("a key that may read sees keys or streams")
	}
}
