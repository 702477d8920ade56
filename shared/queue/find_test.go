package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// more are further endpoints with a queue.
func (s *env) more(t testing.TB, n int) []endpoint.Endpoint {
	t.Helper()
	all := []endpoint.Endpoint{s.e}
	for i := range n {
		e, err := endpoint.Endpoint{ID: fmt.Sprintf("other-%d", i)}.Complete()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// A job is found wherever it is, at the same number of messages among many.
func TestFind(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	all := s.more(t, 9)
	at := all[7]
	submit := func() job.ID {
		j, err := s.q.Submit(t.Context(), at, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	waiting, cancelled := submit(), submit()
	if _, err := s.q.Cancel(t.Context(), at, cancelled); err != nil {
		t.Fatal(err)
	}
	q := s.queue(t, Config{})
	find := func(id job.ID, want job.Status) int {
		least := 1 << 30
		for range 5 { // the clock's probes are counted too
			before := q.nc.Stats()
			j, err := q.Lists.Find(t.Context(), all, id)
			if err != nil || j.Endpoint != at.ID || j.Status != want {
				t.Fatalf("got %+v, %v, want %s at %s", j, err, want, at.ID)
			}
			after := q.nc.Stats()
			least = min(least, int(after.OutMsgs-before.OutMsgs+after.InMsgs-before.InMsgs))
		}
		return least
	}
	fewWaiting, fewEnded := find(waiting, job.InQueue), find(cancelled, job.Cancelled)
	s.submitMany(t, 5000)
	if got := find(waiting, job.InQueue); got > fewWaiting+10 {
		t.Errorf("a job that waits: got %d messages among many, want %d", got, fewWaiting)
	}
	if got := find(cancelled, job.Cancelled); got > fewEnded+10 {
		t.Errorf("a job that is over: got %d messages among many, want %d", got, fewEnded)
	}
	for _, id := range []job.ID{NewID(job.Async), "a.b", "*", ""} {
		if j, err := q.Lists.Find(t.Context(), all, id); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%q: got %v, %v", id, j, err)
		}
	}
	if j, err := q.Lists.Find(t.Context(), all[:7], waiting); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("without its endpoint: got %v, %v", j, err)
	}
}

// BenchmarkFind finds an ended job and a waiting job, among 20 endpoints and few jobs or
// many.
func BenchmarkFind(b *testing.B) {
	s := newBench(b)
	all := (&env{q: s.q, e: s.e}).more(b, 19)
	j, err := s.q.Submit(b.Context(), all[9], NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
	if err != nil {
		b.Fatal(err)
	}
	over, err := s.q.Submit(b.Context(), all[9], NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
	if err == nil {
		_, err = s.q.Cancel(b.Context(), all[9], over.ID)
	}
	if err != nil {
		b.Fatal(err)
	}
	there := 0
	for _, n := range []int{10, 100_000} {
		var g errgroup.Group
		g.SetLimit(256)
		for ; there < n; there++ {
			over := there%2 == 0
			g.Go(func() error {
				other, err := s.q.Submit(b.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
				if err == nil && over {
					_, err = s.q.Cancel(b.Context(), s.e, other.ID)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		for name, id := range map[string]job.ID{"waiting": j.ID, "over": over.ID} {
			b.Run(fmt.Sprintf("%s among %d", name, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.q.Lists.Find(b.Context(), all, id); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
