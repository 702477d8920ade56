package autoscaler

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/logs"
	"flightline/shared/logs/logstest"
	"flightline/shared/testenv"
)

// logged are the lines that are kept of an endpoint's workers.
func (s *env) logged(e endpoint.Endpoint) []logs.Entry {
	s.t.Helper()
	return logstest.All(s.t, s.queue.Bus(), logs.Watching{Endpoint: e, Resume: true})
}

// printed are those that the workers printed.
func (s *env) printed(e endpoint.Endpoint) []logs.Entry {
	s.t.Helper()
	return slices.DeleteFunc(s.logged(e), func(l logs.Entry) bool { return l.Stream == logs.System })
}

// What a process prints is kept while it runs, with its secrets hidden and jobs named; a
// last line without end once it has ended.
func TestWhatAProcessPrintsIsKept(t *testing.T) {
	s := newEnv(t)
	d, err := driver.NewProcess(t.Context(), driver.ProcessConfig{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.WithoutCancel(t.Context())) })
	const script = `echo hello $API_TOKEN; echo '{"requestId":"job-1","message":"no","level":"ERROR"}' >&2; printf "no end"; exec sleep 1000`
	e := s.endpoint("ep", bounds(1, 1), func(e *endpoint.Endpoint) {
		e.Fleet.Command, e.Env = []string{"sh", "-c", script}, map[string]string{"API_TOKEN": "secret-of-the-test"}
	})
	stop := s.autoscaler(d)
	testenv.Eventually(t, "two lines are kept", func() bool { return len(s.printed(e)) == 2 })
	stop()
	all := s.printed(e)
	if len(all) != 3 || all[2].Text != "no end" {
		t.Fatalf("got %s, want the line without end last", logstest.Texts(all))
	}
	for _, l := range all {
		switch {
		case l.Stream == logs.Stderr && (l.Job != "job-1" || l.Level != "error"):
			t.Errorf("got %+v, want its job and level", l)
		case l.Text == "hello secret-of-the-test", l.Worker != "ep-0-1":
			t.Errorf("got %+v", l)
		}
	}
	if !strings.Contains(logstest.Texts(all), "hello ***") {
		t.Errorf("got %s, want the secret hidden", logstest.Texts(all))
	}
}

// following is an engine that keeps what its pods print, and goes on without us.
type following struct {
	driver.Driver
	mu    sync.Mutex
	lines []driver.Printed
	more  chan struct{}
}

func (f *following) print(texts ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, text := range texts {
		f.lines = append(f.lines, driver.Printed{At: time.Now(), Text: []byte(text)})
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *following) Follow(ctx context.Context, _ string, since time.Time, each func(driver.Printed)) error {
	for next := 0; ; {
		f.mu.Lock()
		some, more := f.lines[next:], f.more
		next = len(f.lines)
		f.mu.Unlock()
		for _, p := range some {
			if p.At.After(since) {
				each(p)
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// An autoscaler that comes back keeps what was printed meanwhile, and nothing twice.
func TestWhatAnEngineKeepsIsCopiedOnce(t *testing.T) {
	s := newEnv(t)
	f := &following{Driver: s.engine("m1"), more: make(chan struct{})}
	e := s.endpoint("ep", bounds(1, 1))
	stop := s.autoscaler(f)
	f.print("one\n", "two in", " pieces\n")
	testenv.Eventually(t, "the first lines are kept", func() bool { return logstest.Texts(s.printed(e)) == "one|two in pieces" })
	stop()
	f.print("three\n")
	stop = s.autoscaler(f)
	f.print("four\n")
	testenv.Eventually(t, "all lines are kept", func() bool { return strings.HasSuffix(logstest.Texts(s.printed(e)), "four") })
	stop()
	if got, want := logstest.Texts(s.printed(e)), "one|two in pieces|three|four"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_ = f.Stop(context.WithoutCancel(t.Context()), "ep-0-1", 0)
}
