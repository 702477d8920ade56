package clients

import (
	"encoding/json"
	"net/url"
	"os/exec"
	"slices"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// verdict is what a receiver prints of a webhook: which secrets it verifies
// with, as it came and with a letter changed.
type verdict struct {
	ID       job.ID `json:"id"`
	Good     []bool `json:"good"`
	Tampered []bool `json:"tampered"`
}

// receiver is a process that verifies webhooks.
type receiver struct {
	t    *testing.T
	s    *env
	d    *daemon
	port string
}

func startReceiver(t *testing.T, s *env, cmd *exec.Cmd) *receiver {
	t.Helper()
	d, err := startDaemon(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	port, err := d.line("listening ")
	if err != nil {
		t.Fatal(err)
	}
	return &receiver{t, s, d, port}
}

// verifies ends a job of the endpoint and returns what the receiver says of its
// webhook with these secrets.
func (r *receiver) verifies(endpoint string, secrets ...string) verdict {
	r.t.Helper()
	to := "http://127.0.0.1:" + r.port + "/hook?" + url.Values{"secret": secrets}.Encode()
	j, err := r.s.api.Run(r.t.Context(), endpoint, client.Request{Input: map[string]string{"text": "hello"}, Webhook: to})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.s.api.Cancel(r.t.Context(), endpoint, j.ID); err != nil {
		r.t.Fatal(err)
	}
	for {
		rest, err := r.d.line("{")
		if err != nil {
			r.t.Fatal(err)
		}
		var v verdict
		if err := json.Unmarshal([]byte("{"+rest), &v); err != nil {
			r.t.Fatalf("%s: %v", rest, err)
		}
		if v.ID == j.ID { // an earlier one may come twice
			return v
		}
	}
}

// expect fails unless the webhook verifies with the secrets that are good, and
// with none once it was touched.
func (r *receiver) expect(what string, got verdict, good ...bool) {
	r.t.Helper()
	if !slices.Equal(got.Good, good) {
		r.t.Errorf("%s: verified %v, want %v", what, got.Good, good)
	}
	if slices.Contains(got.Tampered, true) {
		r.t.Errorf("%s: a touched body was verified: %v", what, got.Tampered)
	}
}

// The libraries that receivers use know our signatures: with the secret, with
// both while they overlap, and with the new one only afterwards.
func TestPublishedVerifiersKnowOurSignatures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		run    func(t *testing.T, what, script string, env ...string) *exec.Cmd
	}{
		python: {"python/webhook_receiver.py", pythonScript},
		node:   {"javascript/webhook_receiver.js", nodeScript},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := test.run(t, name, test.script)
			s := sharedSite(t)
			r := startReceiver(t, s, cmd)
			id := s.endpoint(t, client.EndpointSpec{})
			e, err := s.api.Endpoints().Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			const stranger = "whsec_c3RyYW5nZXJzdHJhbmdlcnN0cmFuZ2Vy"
			r.expect("one secret", r.verifies(id, e.WebhookSecret, stranger), true, false)
			second := rotate(t, s, id, time.Hour)
			testenv.Eventually(t, "both secrets sign", func() bool {
				return slices.Equal(r.verifies(id, e.WebhookSecret, second).Good, []bool{true, true})
			})
			r.expect("an overlap", r.verifies(id, e.WebhookSecret, second, stranger), true, true, false)
			third := rotate(t, s, id, 0)
			testenv.Eventually(t, "the old ones no longer sign", func() bool {
				return slices.Equal(r.verifies(id, e.WebhookSecret, second, third).Good, []bool{false, false, true})
			})
		})
	}
}

func rotate(t *testing.T, s *env, endpoint string, overlap time.Duration) (secret string) {
	t.Helper()
	made, err := s.api.Webhooks(endpoint).RotateSecret(t.Context(), overlap)
	if err != nil {
		t.Fatal(err)
	}
	return made.Secret
}
