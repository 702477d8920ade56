package queue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

func TestAQueueIsMeasuredWhenItMatters(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		room room
		want bool
	}{
		"no job came":                  {room{limit: 100}, false},
		"the first job came":           {room{limit: 100, added: 1, accepted: 1}, true},
		"little is used":               {room{limit: 100, added: 1, accepted: 1, used: 40, measured: now.Add(-29 * time.Second)}, false},
		"little was used, a while ago": {room{limit: 100, added: 1, accepted: 1, used: 40, measured: now.Add(-30 * time.Second)}, true},
		"more than half is used":       {room{limit: 100, added: 1, accepted: 1, used: 50, measured: now.Add(-time.Second)}, true},
		"much was accepted":            {room{limit: 100, added: 11, accepted: 11, measured: now.Add(-time.Second)}, true},
		"it is full, and one came":     {room{limit: 100, added: 9, used: 99, measured: now.Add(-time.Second)}, true},
		"it is full, and none came":    {room{limit: 100, used: 99, measured: now.Add(-time.Hour)}, false},
	} {
		if got := test.room.due(now); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestASubmissionIsRefusedByAFreshMeasurementOnly(t *testing.T) {
	now := time.Now()
	e := endpoint.Endpoint{ID: "ep", MaxQueueBytes: 100}
	for name, test := range map[string]struct {
		room room
		size int64
		want int64 // used, as the error says it; 0 for admitted
	}{
		"never measured":           {room{}, 200, 0},
		"there is room":            {room{used: 40, accepted: 40, measured: now}, 20, 0},
		"there is none":            {room{used: 40, accepted: 40, measured: now}, 21, 80},
		"there was none some time": {room{used: 200, measured: now.Add(-maxRefusalAge)}, 21, 0},
	} {
		s := rooms{of: map[string]*room{"ep": &test.room}}
		before := test.room.accepted
		err := s.admit(e, test.size, now)
		full, refused := errors.AsType[*FullError](err)
		if refused != (test.want > 0) || refused && (full.Used != test.want || full.Limit != 100 || full.Size != test.size) {
			t.Errorf("%s: got %v, want %d used", name, err, test.want)
		}
		if got := test.room.accepted - before; refused != (got == 0) {
			t.Errorf("%s: got %d bytes more, refused %v", name, got, refused)
		}
	}
}

// A queue that is full refuses jobs, with inputs in the message and beside it,
// and nothing else: what was accepted is retried, gets a longer ttl, runs and
// ends, and makes room.
func TestAFullQueueRefusesJobsAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"in the message": 200 << 10, "beside it": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(e *endpoint.Endpoint) { e.MaxQueueBytes = 4 << 20 })
			input := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
			accepted := []job.ID{}
			var full *FullError
			for full == nil {
				id := NewID(job.Async)
				_, err := s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: input})
				switch found, isFull := errors.AsType[*FullError](err); {
				case isFull:
					full = found
				case err != nil:
					t.Fatal(err)
				default:
					accepted = append(accepted, id)
				}
				if len(accepted) > 100 {
					t.Fatal("got 100 jobs, want the queue to be full")
				}
				s.measured(t)
			}
			if !errors.Is(full, ErrFull) || full.Limit != 4<<20 || full.Used+full.Size <= full.Limit || full.Used > full.Limit+full.Limit/4 {
				t.Errorf("got %v, want about the limit in use", full)
			}
			if sum := int64(len(accepted) * size); full.Used < sum*3/4 || full.Used > sum*5/4 {
				t.Errorf("got %d bytes in use after %d jobs of %d, want about their sum", full.Used, len(accepted), size)
			}
			if _, err := s.q.SetTTL(t.Context(), s.e, accepted[1], 48*time.Hour); err != nil {
				t.Errorf("a longer ttl: %v", err)
			}
			taker := s.taker(t, s.q, "w")
			l := next(t, taker)
			if _, err := l.Fail(t.Context(), "once"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.q.Retry(t.Context(), s.e, l.Job.ID); err != nil {
				t.Errorf("a retry: %v", err)
			}
			for range accepted {
				if _, err := next(t, taker).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range accepted {
				s.want(t, id, job.Completed)
			}
		})
	}
}

// measured measures the queue now.
func (s *site) measured(t *testing.T) {
	t.Helper()
	s.q.rooms.mu.Lock()
	r := *s.q.rooms.of[s.e.ID]
	s.q.rooms.mu.Unlock()
	s.q.measureRoom(t.Context(), r)
}

// Once jobs have ended, new ones are accepted.
func TestAQueueThatWasFullAcceptsJobsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *endpoint.Endpoint) { e.MaxQueueBytes = 1 << 20 })
	input := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	submit := func() error {
		_, err := s.q.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: input})
		s.measured(t)
		return err
	}
	n := 0
	for ; submit() == nil; n++ {
		if n > 100 {
			t.Fatal("got 100 jobs, want the queue to be full")
		}
	}
	taker := s.taker(t, s.q, "w")
	for range n {
		if _, err := next(t, taker).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(soon); ; <-time.After(50 * time.Millisecond) {
		err := submit()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrFull) || time.Now().After(end) {
			t.Fatalf("got %v, want room again", err)
		}
	}
}
