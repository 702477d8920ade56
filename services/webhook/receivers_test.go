package webhook

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
)

// exact is how far from its time an attempt may be.
const exact = 250 * time.Millisecond

// The contract's pauses, with receivers of every kind side by side.
func TestReceiversOfEveryKind(t *testing.T) {
	t.Parallel()
	s := newSite(t) // no schedule of its own: twice 10 s
	cfg := lenient()
	cfg.Timeout = 2 * time.Second
	s.serve(cfg)
	released := make(chan struct{})
	tests := map[string]struct {
		answer   http.HandlerFunc // nil: nobody listens
		attempts int
		status   int
		text     string // within the error of the log
	}{
		"200":            {answerWith(200), 1, 200, ""},
		"204":            {answerWith(204), 1, 204, ""},
		"500":            {answerWith(500), 3, 500, ""},
		"301":            {redirect, 3, 301, ""},
		"hangs":          {func(_ http.ResponseWriter, r *http.Request) { hang(r, released) }, 3, 0, "no answer within 2s"},
		"closes":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 3, 0, "closed without an answer"},
		"byte by byte":   {drip, 1, 200, ""},
		"sends 1 GB":     {flood, 1, 200, ""},
		"1 GB and a 502": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway); flood(w, r) }, 3, 502, ""},
		"is not there":   {nil, 3, 0, "connection refused"},
	}
	type started struct {
		id job.ID
		r  *receiver
	}
	all := map[string]started{}
	for name, test := range tests {
		to, r := nobody(t), (*receiver)(nil)
		if test.answer != nil {
			r = receive(t, test.answer)
			to = r.url
		}
		all[name] = started{s.complete(to), r}
	}
	for name, test := range tests {
		log := s.over(all[name].id)
		if len(log) != test.attempts {
			t.Errorf("%s: got %d attempts in the log, want %d", name, len(log), test.attempts)
		}
		if r := all[name].r; r != nil && len(r.calls()) != test.attempts {
			t.Errorf("%s: got %d calls, want %d", name, len(r.calls()), test.attempts)
		}
		checkLog(t, name, log, test.status, test.text)
	}
	close(released)
}

func checkLog(t *testing.T, name string, log []queue.Delivery, status int, text string) {
	t.Helper()
	for i, d := range log {
		if d.Try != i+1 || d.Status != status || !strings.Contains(d.Error, text) || (text == "") != (d.Error == "") {
			t.Errorf("%s: got attempt %+v, want number %d, status %d, error %q", name, d, i+1, status, text)
		}
		want := queue.DeliveryFailed
		switch {
		case status >= 200 && status <= 299:
			want = queue.Delivered
		case i == len(log)-1:
			want = queue.DeliveryGivenUp
		}
		if d.Outcome != want {
			t.Errorf("%s, attempt %d: got %s, want %s", name, i+1, d.Outcome, want)
		}
		if i == 0 {
			continue
		}
		ended := log[i-1].Started.Add(log[i-1].Took)
		if pause := d.Started.Sub(ended); pause < retryPause-exact || pause > retryPause+exact {
			t.Errorf("%s: attempt %d began %s after the end of the one before, want %s", name, i+1, pause, retryPause)
		}
	}
}

func redirect(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(http.StatusMovedPermanently)
}

func hang(r *http.Request, released <-chan struct{}) {
	select {
	case <-released:
	case <-r.Context().Done():
	}
}

// drip sends a byte each 100 ms for as long as somebody reads.
func drip(w http.ResponseWriter, r *http.Request) {
	for {
		_, err := w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func flood(w http.ResponseWriter, _ *http.Request) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 1024 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	t.Parallel()
	s := newSite(t, time.Second)
	s.serve(lenient())
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	log := s.over(s.complete(r.url))
	if len(log) != 2 {
		t.Fatalf("got %d attempts, want 2: one pause in the schedule", len(log))
	}
	pause := log[1].Started.Sub(log[0].Started.Add(log[0].Took))
	if pause < 3*time.Second-exact || pause > 3*time.Second+exact {
		t.Errorf("got a pause of %s, want 3s", pause)
	}
}
