package recorder

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/events"
	"flightline/shared/testenv"
	"flightline/streams"
)

// told reads the whole log: the events of each attempt in their order.
func (s *env) told(t *testing.T) map[string][]string {
	t.Helper()
	log, err := events.New(s.NC, s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.JS.Stream(t.Context(), streams.Events)
	if err != nil {
		return nil // the server is away
	}
	last := info.CachedInfo().State.LastSeq
	got := map[string][]string{}
	enough := errors.New("enough")
	if last == 0 {
		return got
	}
	err = log.Follow(t.Context(), 0, func(e events.Event) error {
		key := fmt.Sprintf("%s.%d", e.Job, e.Attempt)
		got[key] = append(got[key], fmt.Sprintf("%s %d", e.Kind, e.Run))
		if e.Seq>>12 == last && e.Seq%(1<<12) == 1<<12-1 { // the last of its entry
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return got
}

// audit waits until the log says what the ledger says, and checks the counts
// and that nothing is left on the disk but what webhooks need.
func (s *env) audit(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	testenv.EventuallyNone(t, func() string { return cmp.Diff(s.want, s.told(t)) })
	log, err := events.New(s.NC, s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNone(t, func() string {
		got, err := log.Totals(t.Context(), s.e.ID)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(s.totals, got)
	})
	testenv.EventuallyNone(t, func() string { return s.left(t) })
	if diff := cmp.Diff(s.want, s.told(t)); diff != "" {
		t.Errorf("the log has changed since:\n%s", diff)
	}
}

// left says what is in the streams of jobs.
func (s *env) left(t *testing.T) string {
	t.Helper()
	var left []string
	for _, name := range []string{streams.Jobs(s.e.ID), streams.Records(0), streams.Output(0)} {
		stream, err := s.JS.Stream(t.Context(), name)
		if err != nil {
			return err.Error()
		}
		if n := stream.CachedInfo().State.Msgs; n > 0 {
			left = append(left, fmt.Sprintf("%d in %s: %s", n, name, s.first(t, stream)))
		}
	}
	beside, err := s.beside(t, streams.Payloads(0), streams.AnyPayload(0, s.e.ID, "*"))
	if err != nil {
		return err.Error()
	}
	left = append(left, slices.Sorted(maps.Keys(beside))...)
	return strings.Join(append(left, s.copies(t)...), ", ")
}

// first describes the first message of a stream.
func (s *env) first(t *testing.T, stream jetstream.Stream) string {
	t.Helper()
	m, err := stream.GetMsg(t.Context(), stream.CachedInfo().State.FirstSeq)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %d, %v %.300s", m.Subject, m.Sequence, m.Header, m.Data)
}

// copies says what is wrong with the copies that webhooks have of payloads: no
// one is delivered, and each has one large input.
func (s *env) copies(t *testing.T) (wrong []string) {
	t.Helper()
	waiting, err := s.beside(t, streams.Webhooks, "webhooks.>")
	if err != nil {
		return []string{err.Error()}
	}
	kept, err := s.beside(t, streams.Payloads(0), streams.KeptFilter(0, s.e.ID))
	if err != nil {
		return []string{err.Error()}
	}
	count := map[string]int{}
	for subject := range kept {
		of := strings.Split(subject, ".") // kept, partition, endpoint, job, attempt, side, token
		count[strings.Join(of[2:6], ".")]++
	}
	for subject := range waiting {
		of := strings.TrimPrefix(subject, "webhooks.") + ".in"
		if n := count[of]; n < 1 || n > 1 && !s.torn {
			wrong = append(wrong, fmt.Sprintf("%d copies of %s", n, of))
		}
		delete(count, of)
	}
	for of, n := range count {
		if !s.torn {
			wrong = append(wrong, fmt.Sprintf("%d copies of %s, which waits for no delivery", n, of))
		}
	}
	return wrong
}

// beside are the subjects in a stream that match a filter.
func (s *env) beside(t *testing.T, name, filter string) (map[string]uint64, error) {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), name)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}
