package queue

import (
	"strings"
	"testing"

	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

const (
	submitted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	retried   = "00-11111111111111111111111111111111-2222222222222222-01"
)

func TestAJobCarriesItsTraceThroughRunsAndRetries(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	consumer := s.consumer(t, s.q, "w1")
	id := s.submit(t, func(r *job.Request) { r.Trace = submitted })
	wants := func(when string, j *job.Job, trace, origin string) {
		t.Helper()
		if j.Trace != trace || j.Origin != origin {
			t.Errorf("%s: got the trace %q from %q, want %q from %q", when, j.Trace, j.Origin, trace, origin)
		}
	}
	l := next(t, consumer)
	wants("the first run", &l.Job, submitted, "")
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = next(t, consumer)
	wants("the second run", &l.Job, submitted, "")
	fail := func() {
		t.Helper()
		j, err := l.Fail(t.Context(), "no")
		if err != nil {
			t.Fatal(err)
		}
		wants("the end", j, l.Job.Trace, l.Job.Origin)
	}
	fail()
	for when, trace := range []string{"", retried, submitted} {
		j, err := s.q.Retry(t.Context(), s.e, id, trace)
		if err != nil {
			t.Fatal(err)
		}
		if trace == "" {
			wants("a retry without a trace", j, submitted, "")
		} else {
			wants("a retry", j, trace, submitted)
		}
		if l = next(t, consumer); l.Job.Trace != j.Trace || l.Job.Origin != j.Origin {
			t.Errorf("retry %d: got %+v, want the trace of the retry", when, l.Job)
		}
		fail()
	}
}

func TestAJobWithoutATraceHasNothingOfItInItsMessage(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	m, err := s.q.bus.LeaderLast(t.Context(), streams.Jobs(s.e.ID), streams.AnyClass(s.e.ID, id))
	if err != nil {
		t.Fatal(err)
	}
	if meta := m.Header.Get(record.MetaHeader); meta == "" || strings.Contains(meta, "trace") || strings.Contains(meta, "origin") {
		t.Errorf("got %s, want no trace", meta)
	}
}
