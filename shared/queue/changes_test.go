package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
)

// factsOf reads facts until enough says that it has seen enough.
func factsOf(t *testing.T, q *Queue, after uint64, enough func(RecordChange) bool) []RecordChange {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var got []RecordChange
	errEnough := errors.New("enough")
	err := q.Changes.Follow(ctx, 0, after, func(f RecordChange) error {
		got = append(got, f)
		if enough(f) {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("got %d facts, and never enough: %v", len(got), err)
	}
	return got
}

func over(id job.ID) func(RecordChange) bool {
	return func(f RecordChange) bool { return f.Job.ID == id && f.Job.Status.Terminal() }
}

func TestFactsTellEveryRunOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	consumer := s.consumer(t, s.q, "w")
	id := s.submit(t, func(r *job.Request) { r.Webhook = "https://example.test/" })
	var began []time.Time
	for range 2 {
		l := next(t, consumer)
		began = append(began, l.Job.Started)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l := next(t, consumer)
	began = append(began, l.Job.Started)
	if _, err := l.Complete(t.Context(), json.RawMessage(`{"big":"`+strings.Repeat("x", 300<<10)+`"}`)); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, s.q, 0, over(id))
	f := facts[len(facts)-1]
	if f.Job.Status != job.Completed || f.Job.Run != 3 || f.Job.Webhook == "" || f.Job.Output != nil {
		t.Errorf("got %+v", f.Job)
	}
	if len(f.Starts) != len(began) {
		t.Fatalf("got starts %v, want %v", f.Starts, began)
	}
	for i := range began {
		if f.Starts[i].UnixMilli() != began[i].UnixMilli() {
			t.Errorf("run %d: got %s, want %s", i+1, f.Starts[i], began[i])
		}
	}
	if last, err := s.q.Changes.Last(t.Context(), 0); err != nil || last != f.Seq {
		t.Errorf("got the last at %d, %v; want %d", last, err, f.Seq)
	}
}

// A job that was given back waits: what it waits for before it is cancelled is no run.
func TestAWaitingJobThatIsCancelledDoesNotRun(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	began := l.Job.Started
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	j, err := s.q.Cancel(t.Context(), s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	if !j.Started.IsZero() || j.Run != 1 || j.Worker != "w" {
		t.Errorf("got %+v, want no start, and the run and its worker", j)
	}
	facts := factsOf(t, s.q, 0, over(id))
	if starts := facts[len(facts)-1].Starts; len(starts) != 1 || starts[0].UnixMilli() != began.UnixMilli() {
		t.Errorf("got the starts %v, want %s", starts, began)
	}
}

func TestStartsThatTheRecordForgotAreZero(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	r := &record.Record{Job: job.Job{Run: 4, Started: at(40)}, StartTimes: []time.Time{at(30)}}
	got := runStarts(r)
	if len(got) != 4 || !got[0].IsZero() || !got[1].IsZero() || !got[2].Equal(at(30)) || !got[3].Equal(at(40)) {
		t.Errorf("got %v", got)
	}
	for i := range 100 {
		rememberStart(r, at(int64(i+1)))
	}
	if len(r.StartTimes) != 32 || !r.StartTimes[31].Equal(at(100)) {
		t.Errorf("got %d remembered up to %v", len(r.StartTimes), r.StartTimes[len(r.StartTimes)-1])
	}
}

func TestFactsGoOnAfterAnOutageAndFromWhereTheyWere(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	consumer := s.consumer(t, s.q, "w")
	first := s.submit(t)
	if _, err := next(t, consumer).Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var second job.ID
	var seqs []uint64
	factsOf(t, s.q, 0, func(f RecordChange) bool {
		seqs = append(seqs, f.Seq)
		if over(first)(f) {
			s.Stop()
			s.Start()
			second = s.submit(t)
			if _, err := next(t, consumer).Complete(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
		return second != "" && over(second)(f)
	})
	for i := 1; i < len(seqs); i++ {
		if seqs[i] <= seqs[i-1] {
			t.Errorf("got sequences %v, want them to grow", seqs)
		}
	}
}
