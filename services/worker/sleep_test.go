package worker

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sleepyServer is a stand-in for a model server that can sleep. It notes what it was asked.
type sleepyServer struct {
	mu     sync.Mutex
	asked  []string
	status int  // of the answers to /sleep and /wake_up, 0 for 200
	asleep bool // it is not healthy before /wake_up
}

func (s *sleepyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == pathHealth && s.asleep:
		http.Error(w, "asleep", http.StatusServiceUnavailable)
		return
	case r.URL.Path == pathHealth:
		return
	}
	s.asleep = s.asleep && r.URL.Path != "/wake_up"
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
	if s.status != 0 {
		http.Error(w, "not in this mode", s.status)
	}
}

// sleeperOf is the sleeper of a worker with the configuration.
func sleeperOf(t *testing.T, cfg Config) *sleeper {
	t.Helper()
	s, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	if s.cfg.Sleep == nil || s.cfg.Wake == nil {
		t.Fatal("got no Sleep and no Wake for the SDK")
	}
	return s.sleeper
}

func TestAServerIsPutToSleepAndWoken(t *testing.T) {
	t.Parallel()
	h := &sleepyServer{}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s := sleeperOf(t, Config{Upstream: Upstream{URL: server.URL, Key: "k"}, Sleep: Sleep{Path: "/sleep?level=1", WakePath: "/wake_up"}})
	if err := s.sleep(t.Context()); err != nil || !s.upstream.asleep.Load() {
		t.Errorf("got %v, want it asleep", err)
	}
	if err := s.wake(t.Context()); err != nil || s.upstream.asleep.Load() {
		t.Errorf("got %v, want it awake", err)
	}
	if want := []string{"POST /sleep?level=1 Bearer k", "POST /wake_up Bearer k"}; !slices.Equal(h.asked, want) {
		t.Errorf("got %q, want %q", h.asked, want)
	}
	h.status = http.StatusNotFound
	if err := s.wake(t.Context()); err == nil || !strings.Contains(err.Error(), "404 Not Found: not in this mode") {
		t.Errorf("got %v, want what the server says", err)
	}
}

func TestCommandsPutAWorkerToSleep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := sleeperOf(t, Config{
		Command: []string{"true"}, Dir: dir, Env: []string{"NAME=state"},
		Sleep: Sleep{Command: "echo asleep > $NAME", WakeCommand: "echo 'the GPU is gone' >&2; exit 3"},
	})
	if err := s.sleep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "state")); string(text) != "asleep\n" {
		t.Errorf("got %q, %v, want what the command wrote", text, err)
	}
	if err := s.wake(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3: the GPU is gone") {
		t.Errorf("got %v, want how the command failed", err)
	}
}

func TestAServerIsAwakeBeforeTheFirstJob(t *testing.T) {
	t.Parallel()
	for name, asleep := range map[string]bool{"healthy asleep": false, "not healthy asleep": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h := newEnv(t), &sleepyServer{asleep: asleep}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			s.run(t, Config{Upstream: Upstream{URL: server.URL}, Sleep: Sleep{Path: "/sleep", WakePath: "/wake_up"}})
			s.ended(t, s.route(t, "/v1/models", "null"))
			h.mu.Lock()
			defer h.mu.Unlock()
			if got := slices.Compact(h.asked); !slices.Equal(got, []string{"POST /wake_up ", "GET /v1/models "}) {
				t.Errorf("got %q, want it awake before it is asked", got)
			}
		})
	}
}

func TestSleepsThatAreRefused(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		`--sleep-path "/sleep" needs --wake-path`:       {Sleep: Sleep{Path: "/sleep"}},
		`--wake-path "/wake" needs --sleep-path`:        {Sleep: Sleep{WakePath: "/wake"}},
		`--sleep-command "a" needs --wake-command`:      {Sleep: Sleep{Command: "a"}},
		`--wake-command "a" needs --sleep-command`:      {Sleep: Sleep{WakeCommand: "a"}},
		`--wake-path must begin with /, got "wake"`:     {Sleep: Sleep{Path: "/sleep", WakePath: "wake"}},
		`--sleep-path "/s" needs --openai-upstream`:     {Command: []string{"true"}, Sleep: Sleep{Path: "/s", WakePath: "/w"}},
		`--sleep-path "/s" and --sleep-command "a" exc`: {Sleep: Sleep{Path: "/s", WakePath: "/w", Command: "a", WakeCommand: "b"}},
	} {
		if len(cfg.Command) == 0 {
			cfg.Upstream.URL = "http://127.0.0.1:1"
		}
		if _, err := New(cfg, nil); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
