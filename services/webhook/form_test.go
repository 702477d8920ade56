package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flightline/shared/job"
	"flightline/shared/queue"
)

// What is written by hand reads as encoding/json would have written it.
func TestBodyAsEncodingJSONHasIt(t *testing.T) {
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
	tests := map[string]queue.Completion{
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
		got, err := bodyOf(&c, 1<<20, "")
		if err != nil || string(got)+"\n" != want.String() {
			t.Errorf("%s:\n got %s, %v\nwant %s", name, got, err, want.String())
		}
	}
}

// A signer that is shared makes the signatures that the published library takes.
func TestSignaturesOfOneSigner(t *testing.T) {
	var s signer
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			secrets := []string{fmt.Sprintf("whsec_%s", strings.Repeat("abcd", 6+i%3)), "whsec_" + strings.Repeat("MDEy", 8)}[:1+i%2]
			header, body := http.Header{}, []byte(strings.Repeat("x", i))
			s.sign(header, secrets, fmt.Sprintf("msg_%d", i), time.Now(), body)
			for _, secret := range secrets {
				w, err := standardwebhooks.NewWebhook(secret)
				if err == nil {
					err = w.Verify(body, header)
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if n := len(s.keys); n != 4 {
		t.Errorf("got %d secrets, want 4", n)
	}
	for i := range keysMost {
		s.sign(http.Header{}, []string{fmt.Sprint(i)}, "msg", time.Now(), nil)
	}
	if n := len(s.keys); n > keysMost {
		t.Errorf("got %d secrets, want %d at most", n, keysMost)
	}
}

func TestTargetsAreRemembered(t *testing.T) {
	var all targets
	for _, webhook := range []string{"https://u:p@H:1/x?y", "http://h/a%20b", "ftp://h", "::", "https://h/" + strings.Repeat("x", targetLong)} {
		want := targetOf(webhook)
		for range 2 {
			if got := all.of(webhook); got.origin != want.origin || got.shown != want.shown || !errors.Is(got.err, want.err) || fmt.Sprint(got.url) != fmt.Sprint(want.url) {
				t.Errorf("%s: got %+v, want %+v", webhook, got, want)
			}
		}
	}
	if n := len(all.known); n != 4 {
		t.Errorf("got %d, want all but the long one", n)
	}
	for i := range targetsMost {
		all.of(fmt.Sprintf("https://h/%d", i))
	}
	if n := len(all.known); n > targetsMost {
		t.Errorf("got %d, want %d at most", n, targetsMost)
	}
}

func TestClocks(t *testing.T) {
	var all clocks
	ctx, cancel := context.WithCancel(t.Context())
	first := all.start(ctx, time.Hour)
	second := all.start(ctx, time.Hour)
	all.stop(first)
	if again := all.start(ctx, time.Millisecond); again != first {
		t.Error("got another one, want that which was stopped")
	}
	<-first.Done()
	if err := context.Cause(first); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that it was late", err)
	}
	all.stop(first)
	if third := all.start(ctx, time.Hour); third == first || third.Err() != nil {
		t.Errorf("got one that rang: %v", third.Err())
	}
	all.stop(second)
	cancel()
	<-second.Done()
	next := all.start(t.Context(), time.Hour)
	if next == second || next.Err() != nil {
		t.Errorf("got one of another run: %v", next.Err())
	}
	all.stop(next)
	all.close()
	if len(all.idle) != 0 || next.Err() == nil {
		t.Errorf("got %d idle, the last one %v, want none", len(all.idle), next.Err())
	}
}
