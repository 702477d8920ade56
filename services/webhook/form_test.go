package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/deliveries"
	"flightline/shared/job"
)

// The body has the fields of the contract, in their order.
func TestBodyAsEncodingJSONHasIt(t *testing.T) {
	t.Parallel()
	type form struct {
		DelayTime     int64           `json:"delayTime"`
		Error         string          `json:"error,omitempty"`
		ExecutionTime int64           `json:"executionTime"`
		ID            job.ID          `json:"id"`
		Input         json.RawMessage `json:"input,omitempty"`
		Output        json.RawMessage `json:"output,omitempty"`
		Retries       int             `json:"retries"`
		Status        job.Status      `json:"status"`
		Webhook       string          `json:"webhook"`
		WorkerID      string          `json:"workerId,omitempty"`
	}
	began := time.UnixMilli(1_800_000_000_000)
	tests := map[string]deliveries.Task{
		"nothing": {},
		"all": {Input: json.RawMessage(`{"n":"<1>"}`), Job: job.Job{
			ID: "j1", Status: job.Completed, Output: json.RawMessage(`[1,"\u2028"]`), Webhook: "https://h/?a=1&b=<2>", Worker: "w-1", Run: 3,
			Queued: began, Started: began.Add(1500 * time.Millisecond), Finished: began.Add(4 * time.Second),
		}},
		"escapes":   {Job: job.Job{Error: "a \"quoted\" \\ line\nand \x01, \xff, é, \u2028 & <b>", Worker: "\t"}},
		"space":     {Input: json.RawMessage("{ \"a\" :\n [1, \"x y\"]\t}\r\n"), Job: job.Job{Output: json.RawMessage(` null `)}},
		"spaceless": {Input: json.RawMessage(`"x"`)},
	}
	for name, c := range tests {
		j := &c.Job
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(form{
			j.Delay().Milliseconds(), j.Error, j.Execution(j.Finished).Milliseconds(), j.ID, c.Input, j.Output, j.Retries(), j.Status, j.Webhook, j.Worker,
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := encodeBody(&c, 1<<20, "")
		if err != nil || string(got)+"\n" != want.String() {
			t.Errorf("%s:\n got %s, %v\nwant %s", name, got, err, want.String())
		}
	}
}

// Signatures are those that the published library verifies, for each secret.
func TestSignatures(t *testing.T) {
	t.Parallel()
	base64, raw := "whsec_"+strings.Repeat("abcd", 6), "whsec_no base64!"
	for i, secrets := range [][]string{{base64}, {base64, "whsec_" + strings.Repeat("MDEy", 8)}, {raw}} {
		header, body := http.Header{}, []byte(strings.Repeat("x", i))
		if err := sign(header, secrets, fmt.Sprintf("msg_%d", i), time.Now(), body); err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			w, err := standardwebhooks.NewWebhook(secret)
			if secret == raw {
				w, err = standardwebhooks.NewWebhookRaw([]byte("no base64!"))
			}
			if err == nil {
				err = w.Verify(body, header)
			}
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
}
