package queue

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// The server's clock is set by an hour, forth and back, while jobs run: their
// holders have as much time as before, and nobody else ends them.
func TestAStepOfTheServersClockEndsNoRun(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	server := stepping(t, s.Config())
	holder, other := server.queue(t), server.queue(t)
	take := s.consumer(t, holder, "holder")
	for _, to := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		id := s.submit(t)
		l := next(t, take)
		server.set(to)
		testenv.Eventually(t, "both have seen the step", func() bool {
			return near(holder.Until(time.Now().Add(to))) && near(other.Until(time.Now().Add(to)))
		})
		if err := l.Extend(t.Context()); err != nil {
			t.Fatalf("the clock at %v: heartbeat: %v", to, err)
		}
		if left := holder.Until(l.Deadline()); left > l.Job.ExecutionTimeout || left < l.Job.ExecutionTimeout-soon {
			t.Errorf("the clock at %v: the run has %v left, want about %v", to, left, l.Job.ExecutionTimeout)
		}
		if j, err := other.Status(t.Context(), s.e, id); err != nil || j.Status != job.InProgress {
			t.Errorf("the clock at %v: another process sees %+v, %v; want IN_PROGRESS", to, j, err)
		}
		if j, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil || j.Status != job.Completed {
			t.Errorf("the clock at %v: got %+v, %v; want COMPLETED", to, j, err)
		}
	}
}

// What is delivered again because of a step is not taken over.
func TestAStepOfTheServersClockProvesNoSilence(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	server := stepping(t, s.Config())
	q := server.queue(t)
	testenv.Eventually(t, "service for a lease", func() bool { return q.bus.Availability().Age() > s.e.Lease })
	before := time.Now()
	server.set(time.Hour)
	testenv.Eventually(t, "the step is seen", func() bool { return near(q.Until(time.Now().Add(time.Hour))) })
	testenv.Eventually(t, "service again", func() bool { return q.bus.Availability().Age() > 0 })
	if served := q.bus.Availability().Age(); served >= time.Since(before) {
		t.Error("service counts as uninterrupted, want it to begin with the step")
	}
}

// An id says when its job came, by the clock by which the job's events are recorded.
func TestAnIDHasTheServersTime(t *testing.T) {
	t.Parallel()
	server := stepping(t, newEnv(t).Config())
	server.set(-time.Hour)
	q := server.queue(t)
	for _, mode := range []job.Mode{job.Async, job.Sync} {
		id := q.NewID(mode)
		if made, ok := id.Made(); !ok || !near(q.Until(made)) || !id.Valid() {
			t.Errorf("%s: got %s, made at %v, want about %v", mode, id, made, q.Now())
		}
	}
}

func near(d time.Duration) bool { return d.Abs() < time.Minute }

// steppingServer is the way to a server whose clock can be set, as far as its
// answers tell.
type steppingServer struct {
	bus.Config
	by atomic.Int64
}

func (s *steppingServer) set(by time.Duration) { s.by.Store(int64(by)) }

// stepping passes on what goes to and comes from the server of cfg, and changes
// the time that the server tells.
func stepping(t *testing.T, cfg bus.Config) *steppingServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := strings.TrimPrefix(cfg.URL, "nats://")
	s := &steppingServer{Config: cfg}
	s.URL = "nats://" + l.Addr().String()
	var wires sync.WaitGroup
	wires.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			wires.Go(func() { s.pass(down, upstream) })
		}
	})
	t.Cleanup(func() { // after the connections' own
		_ = l.Close()
		wires.Wait()
	})
	return s
}

// pass ends with the client's connection.
func (s *steppingServer) pass(down net.Conn, upstream string) {
	defer down.Close() //nolint:errcheck // it has no more to say
	up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // nor this
	go func() {      // ends with down
		_, _ = bufio.NewReader(down).WriteTo(up)
		_ = up.Close()
	}()
	for r := bufio.NewReader(up); ; {
		line, err := r.ReadBytes('\n')
		if _, writeErr := down.Write(s.told(line)); errors.Join(err, writeErr) != nil {
			return
		}
	}
}

var timestamp = regexp.MustCompile(`"ts":"([^"]+)"`)

// told is a line with the server's time changed in it. It is as long as before.
func (s *steppingServer) told(line []byte) []byte {
	by := time.Duration(s.by.Load())
	if by == 0 {
		return line
	}
	return timestamp.ReplaceAllFunc(line, func(found []byte) []byte {
		text := timestamp.FindSubmatch(found)[1]
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return found
		}
		whole := at.Add(by).Format("2006-01-02T15:04:05")
		return append([]byte(`"ts":"`+whole), append(text[len(whole):], '"')...)
	})
}

func (s *steppingServer) queue(t *testing.T) *Queue {
	t.Helper()
	q, err := New(t.Context(), testenv.Connect(t, s.Config), Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return q.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return q
}
