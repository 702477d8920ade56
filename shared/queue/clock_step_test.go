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
)

func TestHowFarTheClockWasSetSince(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := noon.Add
	const hour, minute = time.Hour, time.Minute
	forward := []step{{at(hour), hour}}                    // at noon
	back := []step{{at(-hour), -hour}}                     // at noon
	there := []step{{at(hour), hour}, {at(minute), -hour}} // and back after a minute
	tests := map[string]struct {
		steps   []step
		of, now time.Duration // the run's start, as the clock showed it, and now; from noon
		want    time.Duration
	}{
		"no step":                         {nil, -minute, 0, 0},
		"forward, before":                 {forward, -minute, hour, hour},
		"forward, long before":            {forward, -20 * hour, hour, hour},
		"forward, by who had not noticed": {forward, 3 * time.Second, hour + 4*time.Second, hour},
		"forward, after":                  {forward, hour + minute, hour + 2*minute, 0},
		"forward, by who noticed earlier": {forward, hour - time.Second, hour, 0},
		"back, before":                    {back, -minute, -hour + minute, -hour},
		"back, by who had not noticed":    {back, 3 * time.Second, -hour + 4*time.Second, -hour},
		"back, long before":               {back, -3 * hour, -hour + minute, -hour},
		"back, after":                     {back, -hour + minute, -hour + 2*minute, 0},
		"back, by a clock ahead of this":  {back, -hour + 2*minute + time.Second, -hour + 2*minute, 0},
		"back, shown twice":               {back, -30 * minute, -20 * minute, 0},
		"there and back, before both":     {there, -minute, 2 * minute, 0},
		"there and back, between":         {there, hour + 30*time.Second, 2 * minute, -hour},
		"there and back, after":           {there, 90 * time.Second, 2 * minute, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := stepped(tc.steps, at(tc.of), at(tc.now)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// The server's clock is set by an hour, forth and back, while jobs run: their
// holders have as much time as before, and nobody else ends them.
func TestAStepOfTheServersClockEndsNoRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := stepping(t, s.Config())
	holder, other := server.queue(t), server.queue(t)
	take := s.taker(t, holder, "holder")
	for _, to := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		id := s.submit(t)
		l := next(t, take)
		server.set(to)
		eventually(t, "both have seen the step", func() bool {
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
	s := newSite(t)
	server := stepping(t, s.Config())
	q := server.queue(t)
	eventually(t, "service for a lease", func() bool { return q.service.age() > s.e.Lease })
	before := time.Now()
	server.set(time.Hour)
	eventually(t, "the step is seen", func() bool { return near(q.Until(time.Now().Add(time.Hour))) })
	eventually(t, "service again", func() bool { return q.service.age() > 0 })
	q.service.mu.Lock()
	defer q.service.mu.Unlock()
	if !q.service.since.After(before) {
		t.Error("service counts as uninterrupted, want it to begin with the step")
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
	nc, err := bus.Connect(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	q, err := New(t.Context(), nc, Config{})
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
