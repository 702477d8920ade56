package recorder

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
)

// writing is the writer of the first partition of an idle recorder.
func (s *env) writing(t *testing.T) *writer {
	t.Helper()
	return writerOf(t, s.idle(t, queue.Config{}))
}

// writerOf is the writer of a recorder's first partition.
func writerOf(t *testing.T, r *Service) *writer {
	t.Helper()
	log, err := r.events.NewAppender(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &writer{s: r, p: &r.parts[0], removals: newRemovalQueue(r), log: log, inLog: loggedEvents{}, server: r.events.Server()}
}

// saves writes a checkpoint, and compares what another recorder would read.
func (w *writer) saves(t *testing.T, want events.Checkpoint) {
	t.Helper()
	if err := w.savePosition(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := w.s.events.Checkpoint(t.Context(), w.p.position())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// What has more unfinished attempts than a message takes goes on from the last
// checkpoint that named all of them.
func TestACheckpointOfManyUnfinishedAttempts(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	w := s.writing(t)
	expires := w.s.queue.Now().Round(0).UTC()
	few := events.Recorded{Endpoint: s.e.ID, Job: "a", Attempt: 1, Events: 2, Expires: expires}
	w.inLog[attempt{few.Endpoint, few.Job, few.Attempt}] = progress{events: few.Events, expires: few.Expires}
	w.p.done.Store(7)
	w.saves(t, events.Checkpoint{Records: 7, Unfinished: []events.Recorded{few}})

	for range 80_000 {
		w.inLog[attempt{s.e.ID, queue.NewID(job.Async), 1}] = progress{events: 2, expires: expires}
	}
	w.p.done.Store(9)
	w.saves(t, events.Checkpoint{Records: 9, Unfinished: []events.Recorded{few}})
}

// A partition in which nothing happens lets the log be trimmed.
func TestTheCheckpointOfAnIdlePartitionMoves(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	w := s.writing(t)
	var list []events.Event
	for i := range maxUnread - 1 {
		list = append(list, events.Event{Kind: events.Queued, Endpoint: fmt.Sprintf("e%d", i), Job: "a", Attempt: 1, Mode: job.Async, Class: job.Normal})
	}
	appends := func(list ...events.Event) {
		if err := w.log.Append(t.Context(), 1, 0, list...); err != nil {
			t.Fatal(err)
		}
	}
	appends(list...)
	w.saves(t, events.Checkpoint{})
	appends(list[0])
	w.saves(t, events.Checkpoint{Log: maxUnread})
}
