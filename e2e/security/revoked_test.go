package security

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

// held is a request whose answer is open.
type held struct {
	status int
	text   string
	err    error // of the answer's body
	ended  time.Time
}

// hold sends a request and reads its answer to the end. begun is closed when the
// server has sent the head, for an answer that is streamed.
func hold(t *testing.T, method, url, key, body string) (begun chan struct{}, end chan held) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", key)
	req.Header.Set("Accept", "text/event-stream, application/json;q=0.5")
	begun, end = make(chan struct{}), make(chan held, 1)
	go func() {
		var h held
		resp, err := http.DefaultClient.Do(req)
		close(begun)
		if h.err = err; err == nil {
			defer resp.Body.Close()
			var raw []byte
			raw, h.err = io.ReadAll(resp.Body)
			h.status, h.text = resp.StatusCode, string(raw)
		}
		h.ended = time.Now()
		end <- h
	}()
	return begun, end
}

// What a key or a worker's token holds open ends when it is revoked: two seconds
// later at most on a machine that is not busy.
func TestARevokedKeyEndsWhatItHolds(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	d := s.Start("dev", "--no-demo")
	base := d.Line(program.Ready)
	s.OK("endpoint", "create", "ep")
	id := program.Submit(s, "ep")
	var key struct{ ID, Key string }
	program.Decode(t, s.OK("key", "create", "ci", "--scope", "submit:ep", "--scope", "read:ep", "-o", "json"), &key)
	var admin struct{ APIKey string }
	program.Decode(t, s.OK("env", "-o", "json"), &admin)
	ends := map[string]chan held{}
	for name, at := range map[string][]string{
		"/events":                 {http.MethodGet, "/events", ""},
		"/stream":                 {http.MethodGet, "/stream/" + id, ""},
		"/status-sync":            {http.MethodGet, "/status-sync/" + id + "?wait=290000", ""},
		"/runsync":                {http.MethodPost, "/runsync?wait=290000", `{"input":{}}`},
		"/openai, streamed":       {http.MethodPost, "/openai/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`},
		"/openai":                 {http.MethodPost, "/openai/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`},
		"/events, of another key": {http.MethodGet, "/events", ""},
	} {
		by := key.Key
		if strings.Contains(name, "another") {
			by = admin.APIKey
		}
		begun, end := hold(t, at[0], base+"/v2/ep"+at[1], by, at[2])
		if strings.HasPrefix(name, "/events") || name == "/stream" {
			<-begun
		}
		ends[name] = end
	}
	s.Eventually("all jobs are submitted", func() bool {
		var health struct{ Jobs struct{ InQueue int } }
		program.Decode(t, s.OK("health", "ep", "-o", "json"), &health)
		return health.Jobs.InQueue == 4
	})
	s.OK("key", "revoke", key.ID)
	revoked, other := time.Now(), ends["/events, of another key"]
	delete(ends, "/events, of another key")
	for name, end := range ends {
		select {
		case h := <-end:
			streamed := strings.HasPrefix(name, "/events") || name == "/stream"
			if !streamed && name != "/openai, streamed" && h.status != http.StatusUnauthorized {
				t.Errorf("%s: got %d %s, want 401", name, h.status, h.text)
			}
			if streamed && h.err == nil {
				t.Errorf("%s: got a whole answer, want one that is cut off: %s", name, h.text)
			}
			t.Logf("%s ended %v after the key was revoked", name, h.ended.Sub(revoked).Round(time.Millisecond))
		case <-time.After(20 * time.Second): // it would be held for minutes
			t.Errorf("%s: still open %v after the key was revoked", name, time.Since(revoked).Round(time.Second))
		}
	}
	select {
	case h := <-other:
		t.Errorf("/events of another key: ended with %d %v", h.status, h.err)
	default:
	}
}
