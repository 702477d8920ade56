package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/streams"
)

// announced ends a job with a webhook and announces it, as the recorder does.
func (s *env) announced(e endpoint.Endpoint) job.ID {
	s.t.Helper()
	id := s.submit(e, func(r *job.Request) { r.Webhook = "http://h.example/hook" })
	j, err := s.queue.Cancel(s.t.Context(), e, id)
	if err == nil {
		err = s.service.deliveries.Enqueue(s.t.Context(), queue.RecordChange{Job: *j, Partition: e.Partition})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// keepAll takes n completions out of the queue as the webhook service does.
func (s *env) keepAll(n int, why deliveries.Reason, destination string) {
	s.t.Helper()
	kept := make(chan error, n)
	ctx, cancel := context.WithCancel(s.t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		_ = s.service.deliveries.Consume(ctx, func(c *deliveries.Task) { kept <- c.DeadLetter(ctx, why, destination) })
	})
	defer reading.Wait()
	defer cancel()
	for range n {
		select {
		case err := <-kept:
			if err != nil {
				s.t.Fatal(err)
			}
		case <-time.After(patience):
			s.t.Fatal("no completion came")
		}
	}
}

func TestDeliveriesAreListedNewestFirst(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		d := deliveries.Attempt{
			Endpoint: "ep1", Job: job.ID(fmt.Sprintf("j%d", i)), Attempt: 1, Try: 1, Outcome: deliveries.Delivered, Status: 200,
			Started: began.Add(time.Duration(i) * time.Minute), Took: 3 * time.Millisecond, URL: "http://h:80/",
		}
		if i == 2 {
			d.Outcome, d.Status, d.Error, d.Next = deliveries.Failed, 0, "connection refused", d.Started.Add(10*time.Second)
		}
		if err := s.service.deliveries.Append(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		d.Endpoint = "other"
		if err := s.service.deliveries.Append(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	jobs := func(got answer) string {
		var names []string
		list, _ := got.body["deliveries"].([]any)
		for _, one := range list {
			d, _ := one.(map[string]any)
			names = append(names, fmt.Sprint(d["job"]))
		}
		return strings.Join(names, " ")
	}
	const path = "/endpoints/ep1/webhooks/deliveries"
	for query, want := range map[string]string{
		"": "j4 j3 j2 j1 j0", "?limit=2": "j4 j3", "?job=j1": "j1", "?job=none": "", "?failed=true": "j2",
		"?since=2026-11-21T12:02:30Z": "j4 j3", "?since=2026-11-21T12:00:00Z&limit=1": "j4",
	} {
		if got := jobs(s.do("GET", path+query, "")); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	first := s.do("GET", path+"?limit=3", "")
	if got := jobs(s.do("GET", path+"?limit=3&cursor="+fmt.Sprint(first.body["cursor"]), "")); first.body["hasMore"] != true || got != "j1 j0" {
		t.Errorf("got %s and then %q, want the rest on a second page", first.raw, got)
	}
	want := `{"deliveries":[{"job":"j2","attempt":1,"try":1,"replay":false,"outcome":"failed","startedAt":"2026-11-21T12:02:00Z","durationMs":3,` +
		`"url":"http://h:80/","status":0,"error":"connection refused","nextAt":"2026-11-21T12:02:10Z"}],"hasMore":false}`
	if got := s.do("GET", path+"?job=j2", ""); got.raw != want {
		t.Errorf("got %s, want %s", got.raw, want)
	}
	for query, text := range map[string]string{"limit=0": "limit must be", "limit=x": "limit must be", "since=now": "since is invalid; must be", "cursor=x": "cursor must be", "job=a.b": "job is no id"} {
		s.expect(query, s.do("GET", path+"?"+query, ""), 400, "invalid_request", text)
	}
	s.expect("no endpoint", s.do("GET", "/endpoints/nobody/webhooks/deliveries", ""), 404, "endpoint_not_found", "")
	s.expect("no id", s.do("GET", "/endpoints/ep1/webhooks/deliveries?job=a.b", ""), 400, "invalid_request", `job is no id: must be 1 to 128 letters, digits, '-' or '_', got "a.b"`)
}

func TestReplayOfAJobAndSinceATime(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	first := s.announced(e)
	s.announced(e)
	s.keepAll(2, deliveries.ReasonGivenUp, "http://h.example:80")
	const path = "/endpoints/ep1/webhooks/replay"
	replay := func(body string, want int) {
		t.Helper()
		if got := s.do("POST", path, body); got.raw != fmt.Sprintf(`{"replayed":%d}`, want) {
			t.Errorf("%s: got %d %s, want %d", body, got.status, got.raw, want)
		}
	}
	replay(`{"since":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`, 0)
	replay(`{"job":"`+string(first)+`"}`, 1)
	replay(`{"since":"`+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+`"}`, 1)
	replay(`{"job":"`+string(first)+`"}`, 1) // nothing is kept of it any more: from its record
	for body, text := range map[string]string{`{}`: "one of job and since", `{"job":"a","since":"2026-11-21T12:00:00Z"}`: "one of job and since", `{"since":"x"}`: "since is invalid; must be", `[]`: "JSON object"} {
		s.expect(body, s.do("POST", path, body), 400, "invalid_request", text)
	}
	for _, id := range []string{"none", "a b"} {
		s.expect(id, s.do("POST", path, `{"job":"`+id+`"}`), 404, "job_not_found", "")
	}
}

func TestPauseAndResume(t *testing.T) {
	s := start(t)
	s.do("POST", "/endpoints", `{"id":"ep1"}`)
	e := s.endpoint("ep1")
	const path = "/endpoints/ep1/webhooks/"
	got := s.do("POST", path+"pause", `{"destination":"http://H.example/hook?x=1","reason":"moves house"}`)
	if got.body["destination"] != "http://h.example:80" || got.body["paused"] != true || got.body["reason"] != "moves house" || got.body["since"] == nil {
		t.Errorf("pause: got %s", got.raw)
	}
	if list := s.do("GET", path+"destinations", ""); list.raw != "["+got.raw+"]" {
		t.Errorf("got %s, want %s in it", list.raw, got.raw)
	}
	s.announced(e)
	s.keepAll(1, deliveries.ReasonPaused, "http://h.example:80")
	if again := s.do("POST", path+"pause", `{"destination":"http://h.example"}`); again.raw != got.raw {
		t.Errorf("pausing again: got %s, want %s", again.raw, got.raw)
	}
	if got := s.do("POST", path+"resume", `{"destination":"http://h.example"}`); got.raw != `{"replayed":1}` {
		t.Errorf("resume: got %s", got.raw)
	}
	if list := s.do("GET", path+"destinations", ""); list.raw != "[]" {
		t.Errorf("got %s, want none", list.raw)
	}
	if n := s.bus.Messages(s.t, streams.Webhooks); n != 1 {
		t.Errorf("got %d completions in the queue, want the one that was kept back", n)
	}
	for _, verb := range []string{"pause", "resume"} {
		s.expect(verb, s.do("POST", path+verb, `{"destination":"h.example"}`), 400, "invalid_request", "destination must be")
	}
	s.expect("a long reason", s.do("POST", path+"pause", `{"destination":"http://h/","reason":"`+strings.Repeat("x", 501)+`"}`), 400, "invalid_request", "reason must")
}

func TestANewSecretOverlapsWithTheOldOne(t *testing.T) {
	s := start(t)
	old := s.do("POST", "/endpoints", `{"id":"ep1"}`).body["webhookSecret"]
	const path = "/endpoints/ep1/webhooks/secret"
	first := s.do("POST", path, `{}`)
	e, err := s.registry.Endpoints.Find(t.Context(), "ep1")
	if err != nil {
		t.Fatal(err)
	}
	if got := e.WebhookSecrets(time.Now()); len(got) != 2 || got[0] != first.body["webhookSecret"] || got[1] != old || got[0] == got[1] {
		t.Errorf("got %d secrets, want the new one and the old one", len(got))
	}
	if got := e.WebhookSecrets(time.Now().Add(25 * time.Hour)); len(got) != 1 {
		t.Errorf("after the overlap: got %d secrets, want one", len(got))
	}
	s.expect("a third one", s.do("POST", path, `{"overlapMs":1000}`), 409, "in_use", "still signs")
	if got := s.do("POST", path, `{"overlapMs":0}`); got.status != 200 {
		t.Errorf("at once: got %s", got.raw)
	}
	if e, err = s.registry.Endpoints.Find(t.Context(), "ep1"); err != nil || len(e.WebhookSecrets(time.Now().Add(time.Second))) != 1 {
		t.Errorf("got %v, want one secret", err)
	}
	s.expect("far too long", s.do("POST", path, `{"overlapMs":100000000000000}`), 400, "invalid_request", "got 100000000000000")
	for _, body := range []string{`{"overlapMs":-1}`, `{"overlapMs":2592000001}`} {
		s.expect(body, s.do("POST", path, body), 400, "invalid_request", "overlapMs must be")
	}
}

func TestTheScheduleIsASetting(t *testing.T) {
	s := start(t)
	for body, want := range map[string]string{`[1000,60000]`: `[1000,60000]`, `[]`: `[]`} {
		s.do("POST", "/endpoints", `{"id":"ep1"}`)
		got := s.do("PATCH", "/endpoints/ep1", `{"webhookRetriesMs":`+body+`}`)
		if !strings.Contains(got.raw, `"webhookRetriesMs":`+want) || s.do("GET", "/endpoints/ep1", "").raw != got.raw {
			t.Errorf("%s: got %s", body, got.raw)
		}
	}
	for _, body := range []string{`[999]`, `[86400001]`, `[` + strings.Repeat("1000,", 20) + `1000]`} {
		s.expect(body, s.do("PATCH", "/endpoints/ep1", `{"webhookRetriesMs":`+body+`}`), 400, "invalid_request", "webhookRetriesMs must be")
	}
}
