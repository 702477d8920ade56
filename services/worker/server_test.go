package worker

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	sdk "flightline/shared/worker"
)

func TestAServersAnswerIsTheJobsOutcome(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler http.HandlerFunc
		status  job.Status
		output  string
		chunks  []string
		err     string
	}{
		"JSON":     {answers(200, "application/json", `{"n": 1}`), job.Completed, `{"n":1}`, nil, ""},
		"any type": {answers(201, "text/plain", "\"text\"\n"), job.Completed, `"text"`, nil, ""},
		"nothing":  {answers(204, "", ""), job.Completed, ``, nil, ""},
		"not JSON": {answers(200, "text/plain", "hello"), job.Failed, ``, nil, `the server's answer is not JSON: "hello"`},
		"refused":  {answers(422, "text/plain", "no such model\n"), job.Failed, ``, nil, "the server answered 422 Unprocessable Entity: no such model"},
		"elsewhere": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusSeeOther) },
			job.Failed, ``, nil, "the server answered 303 See Other: ",
		},
		"lines": {
			answers(200, "application/x-ndjson; charset=utf-8", "1\nloading\n[2]\n\n3\n"),
			job.Completed, `3`,
			[]string{`1`, `[2]`},
			"",
		},
		"lines of text": {answers(200, "application/x-ndjson", "hello\nworld\n"), job.Completed, `"hello\nworld"`, nil, ""},
		"too much": {
			answers(200, "application/json", `"`+strings.Repeat("x", job.MaxOutput+4096)+`"`),
			job.Failed, ``, nil, "output_too_large: the server's answer is longer than 20 MB",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.serve(t, tt.handler)
			id := s.submit(t)
			j := s.ended(t, id)
			if j.Status != tt.status || string(j.Output) != tt.output || j.Error != tt.err {
				t.Errorf("got %s %.100s %q, want %s %s %q", j.Status, j.Output, j.Error, tt.status, tt.output, tt.err)
			}
			if got := s.chunks(t, id); !slices.Equal(got, tt.chunks) {
				t.Errorf("got chunks %q, want %q", got, tt.chunks)
			}
		})
	}
}

func answers(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestAServerGetsTheJob(t *testing.T) {
	s := newEnv(t)
	s.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s of %s", r.Method, r.Header.Get("Content-Type"))
		}
		_, _ = io.Copy(w, r.Body)
	})
	id := s.submit(t)
	want := `{"id":"` + string(id) + `","input":{"text":"hi"},"policy":{"executionTimeout":600000,"ttl":86400000,"lowPriority":false}}`
	if got := string(s.ended(t, id).Output); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestACancelEndsTheRequest(t *testing.T) {
	s := newEnv(t)
	asked, hungUp := make(chan struct{}), make(chan struct{})
	s.serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
		close(hungUp)
	})
	id := s.submit(t)
	<-asked
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	<-hungUp
}

// The caller reads the error of a job, and who runs the worker its last one; the address may
// hold a secret.
func TestAnErrorOfTheServerShowsNoAddress(t *testing.T) {
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(cut.Close)
	for at, want := range map[string]string{
		"127.0.0.1:1":                "ask the server: connect: connection refused",
		cut.Listener.Addr().String(): "ask the server: EOF",
	} {
		s := newServer("http://t0ken@"+at+"/run?key=s3cret", 1, slog.New(slog.DiscardHandler))
		if _, err := s.run(t.Context(), &sdk.Job{Input: []byte("{}")}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A server closes a connection that idles, and a job on it would be lost.
func TestAnIdleConnectionIsClosedBeforeTheServerDoes(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			select {
			case closed <- struct{}{}:
			default: // it was seen
			}
		}
	}
	server.Start()
	s.run(t, Config{URL: server.URL})
	s.ended(t, s.submit(t))
	select {
	case <-closed:
	case <-time.After(soon):
		t.Error("the connection is open")
	}
	server.Close()
}

func TestAServerThatIsAwayFailsTheJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if j := s.ended(t, s.submit(t)); j.Status != job.Failed || !strings.HasPrefix(j.Error, "ask the server: ") {
		t.Errorf("got %s %q", j.Status, j.Error)
	}
}
