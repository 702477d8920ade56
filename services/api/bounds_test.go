package api

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/web"
)

func TestWithoutTheBusEverythingIs503Within5s(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	s.bus.Stop()
	var calls sync.WaitGroup
	for _, call := range [][2]string{
		{"POST", "/ep/run"},
		{"POST", "/ep/runsync"},
		{"GET", "/ep/status/" + id},
		{"POST", "/ep/cancel/" + id},
		{"GET", "/ep/health"},
		{"POST", "/other/run"},
	} {
		calls.Go(func() {
			began := time.Now()
			got := s.do(call[0], call[1], `{"input":{}}`)
			if took := time.Since(began); took > 5*time.Second+noise {
				t.Errorf("%v: took %s", call, took)
			}
			if got.status != 503 || got.header.Get("Retry-After") != "1" || got.body["code"] != "unavailable" {
				t.Errorf("%v: got %d %s", call, got.status, got.raw)
			}
		})
	}
	calls.Wait()
	s.bus.Start()
	testenv.Eventually(t, "all resumes", func() bool { return s.do("GET", "/ep/status/"+id, "").status == 200 })
}

// The time for an answer begins when the body has come: a client on a slow line would be
// answered 503 however often it tried.
func TestABodyThatComesSlowlyIsNoOutage(t *testing.T) {
	t.Parallel()
	s := start(t)
	const size = 100 << 10
	var calls sync.WaitGroup
	for form, length := range map[string]int64{"in chunks": -1, "of a known length": size} {
		calls.Go(func() {
			received, sent := io.Pipe()
			calls.Go(func() {
				text := body(size)
				_, first := io.CopyN(sent, text, size/2)
				<-time.After(web.AnswerWithin + 100*time.Millisecond)
				_, second := io.Copy(sent, text)
				_ = sent.CloseWithError(errors.Join(first, second)) // never fails
			})
			req := s.request(http.MethodPost, "/ep/run", received)
			req.ContentLength = length
			if got := s.send(req); got.status != http.StatusOK {
				t.Errorf("%s: got %d %s, want it accepted", form, got.status, got.raw)
			}
		})
	}
	calls.Wait()
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	s := start(t)
	const mb = 1 << 20
	for _, tc := range []struct {
		path       string
		size, want int
	}{
		{"/ep/run", 10*mb - 1, 200},
		{"/ep/run", 10 * mb, 200},
		{"/ep/run", 10*mb + 1, 413},
		{"/ep/run", 40 * mb, 413},
		{"/ep/runsync?wait=1000", 20*mb - 1, 200},
		{"/ep/runsync?wait=1000", 20 * mb, 200},
		{"/ep/runsync?wait=1000", 20*mb + 1, 413},
		{"/ep/runsync?wait=1000", 40 * mb, 413},
	} {
		var got answer
		testenv.Eventually(t, "storage keeps up", func() bool { // on a busy machine 20 MB take it longer than a request may take
			req := s.request("POST", tc.path, body(tc.size))
			req.ContentLength = int64(tc.size)
			got = s.send(req)
			return got.status != http.StatusServiceUnavailable
		})
		if got.status != tc.want || (tc.want == 413) != (got.body["code"] == "body_too_large") {
			t.Errorf("%s with %d bytes: got %d %s, want %d", tc.path, tc.size, got.status, got.raw, tc.want)
		}
	}
}

func TestTheJobGetsItsInputVerbatim(t *testing.T) {
	t.Parallel()
	s := start(t)
	const input = `{"a":[1,2.50,"<é>\u0000"],"b":{"c":null}}`
	req := s.request("POST", "/ep/run", strings.NewReader(`{"input":`+input+`,"unknown":[1]}`))
	req.Header.Set("Content-Type", "text/plain")
	got := s.send(req)
	// A second request reuses the memory of the first.
	s.do("POST", "/ep/cancel/nobody", strings.Repeat("x", 200))
	if lease := s.take(); string(lease.Input) != input || string(lease.Job.ID) != got.id() {
		t.Errorf("got %s of %s, want %s of %s", lease.Input, lease.Job.ID, input, got.id())
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	keys := map[string]string{}
	for _, text := range []string{"submit:ep", "read:ep", "admin:ep", "admin:other", "control"} {
		scope, err := registry.ParseScope(text)
		if err != nil {
			t.Fatal(err)
		}
		if keys[text], _, err = s.registry.Keys.Create(t.Context(), registry.KeySpec{Scopes: []registry.Scope{scope}}); err != nil {
			t.Fatal(err)
		}
	}
	const input = `{"input":{}}`
	tests := map[string]struct{ method, path, body, allowed string }{
		"run":         {"POST", "/ep/run", input, "submit:ep admin:ep"},
		"runsync":     {"POST", "/ep/runsync?wait=1000", input, "submit:ep admin:ep"},
		"cancel":      {"POST", "/ep/cancel/" + id, "", "submit:ep admin:ep"},
		"status":      {"GET", "/ep/status/" + id, "", "read:ep admin:ep"},
		"status-sync": {"GET", "/ep/status-sync/" + id, "", "read:ep admin:ep"},
		"ttl":         {"GET", "/ep/status/" + id + "?ttl=600000", "", "admin:ep"},
		"health":      {"GET", "/ep/health", "", "read:ep admin:ep"},
		"purge":       {"POST", "/ep/purge-queue", "", "admin:ep"},
	}
	if got := s.do("POST", "/ep/cancel/"+id, ""); got.status != 200 { // so that nothing waits
		t.Fatal(got.raw)
	}
	for name, tc := range tests {
		for scope, key := range keys {
			req := s.request(tc.method, tc.path, strings.NewReader(tc.body))
			req.Header.Set("Authorization", key)
			got, want := s.send(req), 401
			if strings.Contains(" "+tc.allowed+" ", " "+scope+" ") {
				want = 200
			}
			if got.status != want {
				t.Errorf("%s with %s: got %d %s, want %d", name, scope, got.status, got.raw, want)
			}
		}
	}
}

func TestRunAnnouncesTheInstance(t *testing.T) {
	t.Parallel()
	s := start(t)
	testenv.Background(t, s.service.Run)
	testenv.Eventually(t, "the instance is listed", func() bool {
		list, err := s.registry.Instances.List(t.Context())
		return err == nil && len(list) == 1 && list[0].Role == "api"
	})
}

func TestNewNeedsItsParts(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("got nil, want an error")
	}
}

func TestSlashesAtTheEndOfABaseURL(t *testing.T) {
	t.Parallel()
	s := start(t)
	req := s.request("POST", "//ep//run", strings.NewReader(`{"input":{}}`))
	if got := s.send(req); got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.raw)
	}
}
