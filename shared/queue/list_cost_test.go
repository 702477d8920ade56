package queue

import (
	"encoding/json"
	"testing"

	"golang.org/x/sync/errgroup"

	"flightline/shared/job"
)

// A page costs the same whether ten jobs wait or twenty thousand, and finds
// those that run behind them. Messages are counted, not time.
func TestThePageOfALongQueueCostsNoMore(t *testing.T) {
	s := newEnv(t)
	q := s.queue(t, Config{})
	consumer := s.consumer(t, s.q, "w")
	s.submitMany(t, 10)
	next(t, consumer)
	few := s.cost(t, q, ListOptions{Most: 10})
	s.submitMany(t, 20_000)
	for _, at := range []struct {
		name string
		w    ListOptions
		n    int
	}{
		{"the newest", ListOptions{Most: 10}, 10},
		{"in the middle", ListOptions{Most: 10, Before: 9_000}, 10},
		{"those that run", ListOptions{Most: 10, Statuses: []job.Status{job.InProgress}}, 1},
		{"those that wait", ListOptions{Most: 10, Statuses: []job.Status{job.InQueue}}, 10},
	} {
		got, _, err := q.Lists.Live(t.Context(), s.e, at.w)
		if err != nil || len(got) != at.n {
			t.Errorf("%s: got %d jobs, %v, want %d", at.name, len(got), err, at.n)
		}
		if many := s.cost(t, q, at.w); many > few+20 {
			t.Errorf("%s: got %d messages, want as with ten jobs, %d", at.name, many, few)
		}
	}
}

// cost is how many messages a page takes, in both directions.
func (s *env) cost(t *testing.T, q *Queue, w ListOptions) int {
	t.Helper()
	least := 1 << 30
	for range 5 { // the clock's probes are counted too
		before := q.nc.Stats()
		if _, _, err := q.Lists.Live(t.Context(), s.e, w); err != nil {
			t.Fatal(err)
		}
		after := q.nc.Stats()
		least = min(least, int(after.OutMsgs-before.OutMsgs+after.InMsgs-before.InMsgs))
	}
	return least
}

func (s *env) submitMany(t *testing.T, n int) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(64)
	for range n {
		g.Go(func() error {
			_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: json.RawMessage(`{}`)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
