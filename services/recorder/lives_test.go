package recorder

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
)

// note writes into the ledger what happened to an attempt.
func (s *env) note(id job.ID, attempt int, steps ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%s.%d", id, attempt)
	s.want[key] = append(s.want[key], steps...)
	if attempt > 1 {
		s.totals.Retried++
	}
	for _, step := range steps {
		kind, run, _ := strings.Cut(step, " ")
		switch events.Kind(kind) {
		case events.Completed:
			s.totals.Completed++
		case events.Failed:
			s.totals.Failed++
		case events.Cancelled:
			s.totals.Cancelled++
		case events.TimedOut:
			s.totals.TimedOut++
		case events.Started:
			if run != "1" {
				s.totals.Retried++
			}
		case events.Queued:
		}
	}
}

// play has n jobs live all kinds of lives.
func (s *env) play(t *testing.T, n int) {
	t.Helper()
	consumer, err := s.q.Consume(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for i := range n {
		s.playOne(t, consumer, i%len(lives))
	}
}

type player struct {
	*env
	t        *testing.T
	consumer *queue.Consumer
}

var big = json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`)

// lives are what may happen, with what the ledger has to say about it.
var lives = []func(p player, id job.ID){
	func(p player, id job.ID) {
		p.must(p.next().Complete(p.t.Context(), json.RawMessage(`1`)))
		p.note(id, 1, "queued 0", "started 1", "completed 1")
	},
	func(p player, id job.ID) {
		p.must(p.next().Fail(p.t.Context(), "no"))
		p.note(id, 1, "queued 0", "started 1", "failed 1")
	},
	func(p player, id job.ID) {
		p.must(p.q.Cancel(p.t.Context(), p.e, id))
		p.note(id, 1, "queued 0", "cancelled 0")
	},
	func(p player, id job.ID) {
		p.next()
		p.must(p.q.Cancel(p.t.Context(), p.e, id))
		p.note(id, 1, "queued 0", "started 1", "cancelled 1")
	},
	func(p player, id job.ID) {
		p.must(p.next().TimeOut(p.t.Context()))
		p.note(id, 1, "queued 0", "started 1", "timed_out 1")
	},
	func(p player, id job.ID) {
		p.must(p.next().Fail(p.t.Context(), "no"))
		p.must(p.q.Retry(p.t.Context(), p.e, id, ""))
		p.must(p.next().Complete(p.t.Context(), big))
		p.note(id, 1, "queued 0", "started 1", "failed 1")
		p.note(id, 2, "queued 0", "started 1", "completed 1")
	},
	func(p player, id job.ID) {
		for range 2 {
			if err := p.next().Release(p.t.Context()); err != nil {
				p.t.Fatal(err)
			}
		}
		lease := p.next()
		if err := lease.Emit(p.t.Context(), json.RawMessage(`{"output":1}`)); err != nil {
			p.t.Fatal(err)
		}
		p.must(lease.Complete(p.t.Context(), big))
		p.note(id, 1, "queued 0", "started 1", "started 2", "started 3", "completed 3")
	},
}

func (p player) must(_ *job.Job, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p player) next() *queue.Lease {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	l, err := p.consumer.Next(ctx)
	if err != nil {
		p.t.Fatalf("no job to take: %v", err)
	}
	return l
}

func (s *env) playOne(t *testing.T, consumer *queue.Consumer, life int) {
	t.Helper()
	id := queue.NewID(job.Async)
	r := job.Request{Input: json.RawMessage(`{"n":` + string(big) + `}`)}
	if life == 0 {
		r.Webhook = "https://example.test/"
	}
	if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, r); err != nil {
		t.Fatal(err)
	}
	lives[life](player{s, t, consumer}, id)
}
