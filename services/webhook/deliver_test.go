package webhook

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/deliveries"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// work completes, or with a reason fails, the job on the endpoint's queue.
func (s *env) work(output json.RawMessage, reason string) *job.Job {
	s.t.Helper()
	l := s.take()
	var j *job.Job
	var err error
	if reason != "" {
		j, err = l.Fail(s.t.Context(), reason)
	} else {
		j, err = l.Complete(s.t.Context(), output)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// take picks up the next job.
func (s *env) take() *queue.Lease {
	s.t.Helper()
	consumer, err := s.queue.Consume(s.t.Context(), s.endpoint, "w1", 1)
	if err != nil {
		s.t.Fatal(err)
	}
	defer consumer.Close()
	l, err := consumer.Next(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// cancel cancels a job.
func (s *env) cancel(id job.ID) *job.Job {
	s.t.Helper()
	j, err := s.queue.Cancel(s.t.Context(), s.endpoint, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// verify holds a request against the published verifier.
func verify(c call, secret string) error {
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return v.Verify(c.body, c.header)
}

func TestBodyAndSignatureOfEachEnd(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	s.serve(lenient())
	r := receive(t, answerWith(200))
	input, output := json.RawMessage(`{"n": "<1>"}`), json.RawMessage(`{"big":"`+strings.Repeat("x", 300<<10)+`"}`)
	tests := map[string]struct {
		end  func(id job.ID) *job.Job
		want string
	}{
		"completed": {
			func(job.ID) *job.Job { return s.work(json.RawMessage(`["a&b"]`), "") },
			`{"delayTime":N,"executionTime":N,"id":"ID","input":{"n":"<1>"},"output":["a&b"],"retries":0,"status":"COMPLETED","webhook":"URL","workerId":"w1"}`,
		},
		"a large output": {
			func(job.ID) *job.Job { return s.work(output, "") },
			`{"delayTime":N,"executionTime":N,"id":"ID","input":{"n":"<1>"},"output":` + string(output) + `,"retries":0,"status":"COMPLETED","webhook":"URL","workerId":"w1"}`,
		},
		"failed": {
			func(job.ID) *job.Job { return s.work(nil, "boom") },
			`{"delayTime":N,"error":"boom","executionTime":N,"id":"ID","input":{"n":"<1>"},"retries":0,"status":"FAILED","webhook":"URL","workerId":"w1"}`,
		},
		"cancelled": {
			s.cancel,
			`{"delayTime":0,"executionTime":0,"id":"ID","input":{"n":"<1>"},"retries":0,"status":"CANCELLED","webhook":"URL"}`,
		},
		"cancelled while it runs": {
			func(id job.ID) *job.Job { s.take(); return s.cancel(id) },
			`{"delayTime":N,"executionTime":N,"id":"ID","input":{"n":"<1>"},"retries":0,"status":"CANCELLED","webhook":"URL","workerId":"w1"}`,
		},
		"cancelled after it was given back": {
			func(id job.ID) *job.Job {
				if err := s.take().Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				return s.cancel(id)
			},
			`{"delayTime":N,"executionTime":N,"id":"ID","input":{"n":"<1>"},"retries":0,"status":"CANCELLED","webhook":"URL","workerId":"w1"}`,
		},
	}
	for name, test := range tests {
		id := queue.NewID(job.Async)
		s.submit(id, r.url+"?q=1", input)
		s.announce(test.end(id))
		s.over(id)
		all := r.calls()
		c := all[len(all)-1]
		got := regexp.MustCompile(`("delayTime"|"executionTime"):\d+`).ReplaceAllString(string(c.body), "$1:N")
		got = strings.NewReplacer(string(id), "ID", r.url+"?q=1", "URL").Replace(got)
		if want := strings.ReplaceAll(test.want, ":0,\"exec", ":N,\"exec"); got != strings.ReplaceAll(want, "executionTime\":0", "executionTime\":N") {
			t.Errorf("%s: got %.300s, want %.300s", name, got, want)
		}
		if err := verify(c, s.endpoint.WebhookSecret); err != nil {
			t.Errorf("%s: the published verifier says %v", name, err)
		}
		if got, want := c.header.Get("webhook-id"), "msg_"+string(id)+"_1"; got != want {
			t.Errorf("%s: got webhook-id %s, want %s", name, got, want)
		}
		if got := c.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: got content type %s", name, got)
		}
	}
	testenv.Eventually(s.t, "an empty queue, and no copies of payloads", func() bool {
		return s.left(streams.Webhooks) == 0 && s.left(streams.Payloads(0)) == 1 // the job's own output
	})
}

func TestBothSecretsSignWhileTheyOverlap(t *testing.T) {
	t.Parallel()
	s := newEnv(t, time.Second)
	s.serve(lenient())
	r := receive(t, answerWith(200))
	old, young := s.endpoint.WebhookSecret, endpoint.NewWebhookSecret()
	for _, test := range []struct {
		overlap   time.Duration
		oldIsGood bool
	}{{time.Hour, true}, {-time.Second, false}} {
		changed, err := s.registry.Endpoints.Update(t.Context(), "ep", func(e endpoint.Endpoint) (endpoint.Endpoint, error) {
			e.WebhookSecret = old
			return e.WithNewSecret(young, time.Now().Add(test.overlap)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(s.t, "the change is known", func() bool {
			s.over(s.complete(r.url))
			all := r.calls()
			return verify(all[len(all)-1], changed.WebhookSecret) == nil && (verify(all[len(all)-1], old) == nil) == test.oldIsGood
		})
	}
}

func TestALargeBodyHasALinkInstead(t *testing.T) {
	t.Parallel()
	big := json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)
	tests := map[string]struct {
		input, output json.RawMessage
		want          []string
		not           string
	}{
		"fits":       {json.RawMessage(`{}`), json.RawMessage(`1`), []string{`"output":1`, `"input":{}`}, "omitted"},
		"output":     {json.RawMessage(`{}`), big, []string{`"omitted":"output: the body`, `"input":{}`, `"outputUrl":"https://f.example/v2/ep/status/j1"`}, `"output":`},
		"input":      {big, nil, []string{`"omitted":"input: the body`}, `"outputUrl"`},
		"both":       {big, big, []string{`"omitted":"output, input: the body`, `"outputUrl"`}, `xxx`},
		"input only": {big, json.RawMessage(`1`), []string{`"omitted":"output, input`}, `xxx`},
		"spaces":     {json.RawMessage(`"` + strings.Repeat("x", 1200) + `"`), json.RawMessage("[\n" + strings.Repeat(" ", 600) + "1\n]"), []string{`"omitted":"output, input`}, `xxx`},
		"the link":   {json.RawMessage(`"` + strings.Repeat("x", 800) + `"`), json.RawMessage(`"` + strings.Repeat("y", 100) + `"`), []string{`"omitted":"output, input`}, `xxx`},
	}
	for name, test := range tests {
		c := &deliveries.Task{Job: job.Job{ID: "j1", Endpoint: "ep", Output: test.output}, Input: test.input}
		body, err := encodeBody(c, 1000, "https://f.example/")
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > 1000 || !json.Valid(body) || strings.Contains(string(body), test.not) {
			t.Errorf("%s: got %s, want no %s", name, body, test.not)
		}
		for _, want := range test.want {
			if !strings.Contains(string(body), want) {
				t.Errorf("%s: got %s, want %s", name, body, want)
			}
		}
	}
}

func TestNothingSecretInTheLog(t *testing.T) {
	t.Parallel()
	s := newEnv(t, []time.Duration{}...)
	s.serve(lenient())
	to := strings.Replace(nowhere, "http://", "http://user:hush@", 1) + "?token=hush"
	for _, d := range s.over(s.complete(to)) {
		if text := fmt.Sprintf("%+v", d); strings.Contains(text, "hush") {
			t.Errorf("got %s", text)
		}
	}
}
