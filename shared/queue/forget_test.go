package queue

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// forget waits until the attempt of f is forgotten.
func (s *site) forget(t *testing.T, q *Queue, f Fact) {
	t.Helper()
	eventually(t, "the attempt is forgotten", func() bool {
		done, err := q.Forget(t.Context(), f.Partition, f.Seq)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
}

func (s *site) left(t *testing.T, stream string) uint64 {
	t.Helper()
	str, err := s.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return str.CachedInfo().State.Msgs
}

func TestForgetLeavesNothing(t *testing.T) {
	s := newSite(t, func(e *endpoint.Endpoint) { e.Retention = 3 * time.Second })
	q := s.queue(t, Config{ForgetGrace: time.Millisecond})
	taker := s.taker(t, s.q, "w")
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input = big })
	l := next(t, taker)
	for range 3 {
		if err := l.Emit(t.Context(), json.RawMessage(`{"output":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	f := facts[len(facts)-1]
	if done, err := q.Forget(t.Context(), 0, f.Seq); done || err != nil {
		t.Fatalf("within its retention: got %t, %v", done, err)
	}
	s.forget(t, q, f)
	for _, stream := range []string{streams.Records(0), streams.Payloads(0), streams.Output(0), streams.Jobs(s.e.ID)} {
		if n := s.left(t, stream); n != 0 {
			t.Errorf("%s: got %d messages left", stream, n)
		}
	}
	s.forget(t, q, f) // again: it is done
}

// A message that a crash left behind must be gone before the record that
// decides about it is.
func TestForgetRemovesALeftOverMessageFirst(t *testing.T) {
	s := newSite(t, func(e *endpoint.Endpoint) { e.Retention, e.Lease = time.Second, time.Minute })
	q := s.queue(t, Config{ForgetGrace: time.Millisecond})
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	l.rec.ack = "nobody.hears" // the crash
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	f := facts[len(facts)-1]
	eventually(t, "the message is removed while the record stays", func() bool {
		done, err := q.Forget(t.Context(), 0, f.Seq)
		if err != nil || done {
			t.Fatalf("got %t, %v", done, err)
		}
		return s.left(t, streams.Jobs(s.e.ID)) == 0
	})
	if n := s.left(t, streams.Records(0)); n != 1 {
		t.Errorf("got %d records, want the one", n)
	}
	s.forget(t, q, f)
	if n := s.left(t, streams.Records(0)); n != 0 {
		t.Errorf("got %d records left", n)
	}
}

func TestForgetKeepsWhatALaterAttemptNeeds(t *testing.T) {
	s := newSite(t, func(e *endpoint.Endpoint) { e.Retention = 3 * time.Second })
	q := s.queue(t, Config{ForgetGrace: time.Millisecond})
	taker := s.taker(t, s.q, "w")
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input = big })
	if _, err := next(t, taker).Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
	s.forget(t, q, facts[len(facts)-1])
	l := next(t, taker)
	if string(l.Input) != string(big) {
		t.Errorf("got an input of %d bytes, want %d", len(l.Input), len(big))
	}
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	facts = factsOf(t, q, 0, func(f Fact) bool { return over(id)(f) && f.Job.Attempt == 2 })
	s.forget(t, q, facts[len(facts)-1])
	for _, stream := range []string{streams.Records(0), streams.Payloads(0)} {
		if n := s.left(t, stream); n != 0 {
			t.Errorf("%s: got %d messages left", stream, n)
		}
	}
}

func TestForgetSparesWhatGoesOn(t *testing.T) {
	s := newSite(t)
	q := s.queue(t, Config{ForgetGrace: time.Millisecond})
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	facts := factsOf(t, q, 0, func(f Fact) bool { return f.Job.ID == id })
	if done, err := q.Forget(t.Context(), 0, facts[0].Seq); !done || err != nil {
		t.Errorf("a running job's write: got %t, %v; want nothing to do", done, err)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatalf("the job was not spared: %v", err)
	}
	s.want(t, id, job.Completed)
}

func TestALargeInputGoesWhenNobodyWillAskForIt(t *testing.T) {
	s := newSite(t)
	taker := s.taker(t, s.q, "w")
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	ends := map[string]struct {
		end  func(l *Lease, id job.ID) error
		left bool
	}{
		"completed": {func(l *Lease, _ job.ID) error { _, err := l.Complete(t.Context(), nil); return err }, false},
		"cancelled": {func(_ *Lease, id job.ID) error { _, err := s.q.Cancel(t.Context(), s.e, id); return err }, false},
		"failed":    {func(l *Lease, _ job.ID) error { _, err := l.Fail(t.Context(), "no"); return err }, true},
	}
	for name, tc := range ends {
		id := s.submit(t, func(r *job.Request) { r.Input = big })
		if err := tc.end(next(t, taker), id); err != nil {
			t.Fatal(name, err)
		}
		facts := factsOf(t, s.q, 0, over(id))
		if err := s.q.DropInput(t.Context(), facts[len(facts)-1]); err != nil {
			t.Fatal(name, err)
		}
		if left := s.left(t, streams.Payloads(0)) > 0; left != tc.left {
			t.Errorf("%s: got the input left %t, want %t", name, left, tc.left)
		}
		if err := s.q.purgeAll(t.Context(), streams.Payloads(0), streams.AnyPayload(0, s.e.ID, id)); err != nil {
			t.Fatal(err)
		}
	}
}

// A run that stored its output and then lost the job leaves parts that no
// record names.
func TestForgetFindsAnOutputThatNoRecordNames(t *testing.T) {
	s := newSite(t, func(e *endpoint.Endpoint) { e.Retention = time.Second })
	q := s.queue(t, Config{ForgetGrace: time.Millisecond})
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	if _, err := s.q.storePayload(t.Context(), placeOf(s.e), l.rec, streams.Out, make([]byte, 300<<10), l.rec.physical()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, q, 0, over(id))
	s.forget(t, q, facts[len(facts)-1])
	if n := s.left(t, streams.Payloads(0)); n != 0 {
		t.Errorf("got %d messages of payloads left", n)
	}
}

// An end that is announced once more must not wait for an input that went when
// it was announced the first time.
func TestAnEndIsAnnouncedAgainWithoutTheInputThatWasDropped(t *testing.T) {
	s := newSite(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 300<<10) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input, r.Webhook = big, "https://example.test/" })
	if _, err := next(t, s.taker(t, s.q, "w")).Complete(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, s.q, 0, over(id))
	f := facts[len(facts)-1]
	if err := s.q.DropInput(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := s.q.Announce(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if n := s.left(t, streams.Webhooks); n != 1 {
		t.Errorf("got %d announced, want 1", n)
	}
}
