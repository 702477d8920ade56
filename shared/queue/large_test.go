package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// slowDisk is a barrier at which each part of a payload waits so long.
func slowDisk(pause time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, stream string) error {
		if stream != streams.Payloads(0) {
			return nil
		}
		select {
		case <-time.After(pause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// largeJSON takes bus.CallTimeout and more to store at a second a part.
func largeJSON() json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", 5*record.PartSize) + `"`)
}

func TestALargeInputMayTakeLongerThanOneAnswer(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	slow := s.queue(t, Config{Durable: slowDisk(time.Second)})
	j, err := slow.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: largeJSON()})
	if err != nil {
		t.Fatalf("got %v, want six parts of 1 s each to be stored", err)
	}
	s.want(t, j.ID, job.InQueue)
}

func TestALargeOutputMayTakeLongerThanOneAnswer(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	slow := s.queue(t, Config{Durable: slowDisk(time.Second)})
	id := s.submit(t)
	l := next(t, s.consumer(t, slow, "w"))
	if _, err := l.Complete(t.Context(), largeJSON()); err != nil {
		t.Fatalf("got %v, want six parts of 1 s each to be stored", err)
	}
	if got := s.want(t, id, job.Completed); len(got.Output) != len(largeJSON()) {
		t.Errorf("got an output of %d bytes, want %d", len(got.Output), len(largeJSON()))
	}
}

// A part that is not stored ends the call as early as any other write does.
func TestALargeInputWaitsForNoPartForEver(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	stuck := s.queue(t, Config{Durable: slowDisk(time.Hour)})
	began := time.Now()
	_, err := stuck.Submit(t.Context(), s.e, NewID(job.Async), job.Async, job.Request{Input: largeJSON()})
	if took := time.Since(began); !errors.Is(err, bus.ErrUnavailable) || took >= bus.CallTimeout+ExtraTime(len(largeJSON())) {
		t.Errorf("got %v after %s, want bus.ErrUnavailable after %s", err, took, bus.CallTimeout)
	}
}
