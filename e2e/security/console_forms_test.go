package security

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"flightline/shared/testenv/program"
)

// An input may have 10 MB. A session may send it by a form.
func TestALargeFormNeedsASession(t *testing.T) {
	t.Parallel()
	s, base, key, _ := console(t)
	s.OK("endpoint", "create", "ep", "--workers-max", "0")
	b := newBrowser(t, base)
	b.signIn(key)
	form := url.Values{"csrf": {b.token("/ui/e/ep/try")}, "input": {`{"input":{"text":"` + strings.Repeat("x", 100<<10) + `"}}`}}
	if got := b.ask("/ui/e/ep/try", form); got.StatusCode != http.StatusSeeOther || !strings.Contains(got.Header.Get("Location"), "job=") {
		t.Errorf("got %d %.100q to %q, want 303 to the job", got.StatusCode, got.text, got.Header.Get("Location"))
	}
	if got := newBrowser(t, base).ask("/ui/e/ep/try", form); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: got %d, want 401", got.StatusCode)
	}
}

// A body is never unfolded, however its encoding is named: 824 bytes would take 1.6 GB.
func TestAFormIsNotUnfolded(t *testing.T) {
	t.Parallel()
	_, base, key, _ := console(t)
	b := newBrowser(t, base)
	b.signIn(key)
	var folded bytes.Buffer
	w := gzip.NewWriter(&folded)
	if _, err := w.Write([]byte("csrf=" + b.token("/ui/"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/ui/system/keys", &folded)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Content-Encoding"] = []string{"identity", "gzip"}
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close() != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("got %d, want 400", resp.StatusCode)
	}
}

// A page that stays open gets no more once its session is signed out. If it was hidden meanwhile,
// it gets that as its first answer when it asks again.
func TestAnOpenPageEndsWithItsSession(t *testing.T) {
	t.Parallel()
	s, base, key, _ := console(t)
	s.OK("endpoint", "create", "ep", "--workers-max", "0")
	b := newBrowser(t, base)
	b.signIn(key)
	token := b.token("/ui/e/ep")
	resp := b.open(t.Context(), "/ui/e/ep")
	defer resp.Body.Close()
	live := bufio.NewScanner(resp.Body)
	live.Buffer(nil, 1<<20)
	for live.Scan() && live.Text() != "event: fragment" {
	}
	if got := b.ask("/ui/sign-out", url.Values{"csrf": {token}}); got.StatusCode != http.StatusSeeOther {
		t.Fatalf("sign out: got %d", got.StatusCode)
	}
	program.Submit(s, "ep") // which the page would show
	defer time.AfterFunc(program.Soon, func() { _ = resp.Body.Close() }).Stop()
	for live.Scan() && live.Text() != "event: signed-out" {
	}
	if live.Text() != "event: signed-out" {
		t.Error("the page goes on without a session")
	}
	got := b.ask("/ui/live?topics=/ui/e/ep", nil, "Accept", "text/event-stream")
	if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "text/event-stream" || !strings.Contains(got.text, "event: signed-out\n") {
		t.Errorf("a page that asks again: got %d %s %q, want that its session is over", got.StatusCode, got.Header.Get("Content-Type"), got.text)
	}
}

// A key that no header may have is a wrong key.
func TestAKeyWithALineBreakIsUnknown(t *testing.T) {
	t.Parallel()
	_, base, _, _ := console(t)
	if got := newBrowser(t, base).ask("/ui/sign-in", url.Values{"key": {"ab\x01cd"}}); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d, want 401", got.StatusCode)
	}
}

// What a page shows of a running job ends with its session, though the key stays.
func TestSigningOutEndsAnOpenStream(t *testing.T) {
	t.Parallel()
	s, base, key, _ := console(t)
	s.OK("endpoint", "create", "ep", "--driver", "external")
	s.Start("worker", "ep", "--grace", "0s", "--", "sh", "-c", `while :; do echo '{"n":1}'; sleep 0.05; done`).Line(program.WorkerReady)
	id := program.Submit(s, "ep")
	b := newBrowser(t, base)
	b.signIn(key)
	ended := make(chan string, 1)
	go func() { ended <- b.ask("/ui/e/ep/jobs/"+id+"/stream", nil, "Accept", "text/event-stream").text }()
	s.Eventually("the job streams", func() bool { return strings.Contains(s.OK("status", "ep", id), "IN_PROGRESS") })
	if got := b.ask("/ui/sign-out", url.Values{"csrf": {b.token("/ui/e/ep")}}); got.StatusCode != http.StatusSeeOther {
		t.Fatalf("sign out: got %d", got.StatusCode)
	}
	select {
	case text := <-ended:
		if !strings.HasSuffix(text, "event: signed-out\ndata: {}\n\n") {
			t.Errorf("got the end %q", text[max(0, len(text)-100):])
		}
	case <-time.After(30 * time.Second): // it would go on with the job
		t.Error("the stream is still open 30 s after the sign-out")
	}
}
