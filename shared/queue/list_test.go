package queue

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

type lister func(context.Context, endpoint.Endpoint, ListOptions) ([]ListItem, uint64, error)

// pages reads a list to its end.
func (s *env) pages(t *testing.T, list lister, w ListOptions) []job.Job {
	t.Helper()
	var jobs []job.Job
	for {
		var page []ListItem
		var next uint64
		testenv.Retry(t, func() (err error) {
			page, next, err = list(t.Context(), s.e, w)
			return err
		})
		if len(page) > w.Most {
			t.Fatalf("got %d jobs, want %d at most", len(page), w.Most)
		}
		for _, l := range page {
			jobs = append(jobs, l.Job)
		}
		if next == 0 {
			return jobs
		}
		if w.Before > 0 && next >= w.Before {
			t.Fatalf("page before %d goes on before %d", w.Before, next)
		}
		w.Before = next
	}
}

func idsOf(jobs []job.Job) (ids []job.ID) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// A message that cannot be decoded keeps no other job from being listed.
func TestListsLeaveOutWhatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	ended, waiting := s.submit(t), s.submit(t)
	if _, err := s.q.Cancel(t.Context(), s.e, ended); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{streams.JobSubject(s.e.ID, job.Normal, "damaged"), streams.RecordSubject(0, s.e.ID, "damaged", 1)} {
		if _, err := s.JS.Publish(t.Context(), subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if got := idsOf(s.pages(t, s.q.Lists.Live, ListOptions{Most: 2})); !slices.Equal(got, []job.ID{waiting}) {
		t.Errorf("live: got %v, want %s", got, waiting)
	}
	if got := idsOf(s.pages(t, s.q.Lists.Ended, ListOptions{Most: 2})); !slices.Equal(got, []job.ID{ended}) {
		t.Errorf("ended: got %v, want %s", got, ended)
	}
	if got, err := s.q.Lists.Lookup(t.Context(), s.e, []job.ID{ended, waiting, "damaged"}); len(got) != 2 || err != nil {
		t.Errorf("looked up: got %v, %v, want two", got, err)
	}
}

// The lists of an endpoint have each job once, where its status says, after
// whatever happened to the jobs, in pages of whatever size.
func TestListsHaveEachJobOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	other := newOther(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	consumer := s.consumer(t, s.q, "w")
	var all []job.ID
	var held []*Lease
	for range 300 {
		switch n := random.IntN(10); {
		case n < 5 || len(all) == 0:
			all = append(all, s.submit(t))
			other()
		case n < 8:
			s.mayEnd(t, random, consumer, &held)
		case n == 8:
			_, err := s.q.Cancel(t.Context(), s.e, all[random.IntN(len(all))])
			notMoreThan(t, err, job.ErrConflict)
		default:
			_, err := s.q.Retry(t.Context(), s.e, all[random.IntN(len(all))], "")
			notMoreThan(t, err, job.ErrConflict)
		}
	}
	want := map[job.Status][]job.ID{}
	for _, id := range all {
		j := s.status(t, id)
		want[j.Status] = append(want[j.Status], id)
	}
	for _, most := range []int{1, 7, 100} {
		for _, status := range job.Statuses() {
			list := s.q.Lists.Live
			if status.Terminal() {
				list = s.q.Lists.Ended
			}
			got := idsOf(s.pages(t, list, ListOptions{Most: most, Statuses: []job.Status{status}}))
			sorted := slices.Sorted(slices.Values(got))
			if expected := slices.Sorted(slices.Values(want[status])); !slices.Equal(sorted, expected) {
				t.Errorf("%s in pages of %d: got %d %v, want %d %v", status, most, len(sorted), sorted, len(expected), expected)
			}
		}
	}
	s.listsAreNewestFirst(t, all)
	seen, err := s.q.Lists.Lookup(t.Context(), s.e, append(slices.Clone(all), "nobody"))
	if err != nil || len(seen) != len(all) {
		t.Fatalf("lookup: got %d jobs, %v, want %d", len(seen), err, len(all))
	}
	for status, ids := range want {
		for _, id := range ids {
			if seen[id].Status != status {
				t.Errorf("lookup: job %s is %s, want %s", id, seen[id].Status, status)
			}
		}
	}
}

// newOther submits jobs of another endpoint of the same partition.
func newOther(t *testing.T, s *env) func() {
	t.Helper()
	e := s.e
	e.ID = "other"
	if err := s.q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return func() {
		id := NewID(job.Async)
		if _, err := s.q.Submit(t.Context(), e, id, job.Async, job.Request{Input: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.q.Cancel(t.Context(), e, id); err != nil {
			t.Fatal(err)
		}
	}
}

// mayEnd picks up a job, if one waits, and ends it, gives it back or holds it.
func (s *env) mayEnd(t *testing.T, random *rand.Rand, consumer *Consumer, held *[]*Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	l, err := consumer.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	switch random.IntN(4) {
	case 0:
		_, err = l.Complete(t.Context(), json.RawMessage(`1`))
	case 1, 2:
		_, err = l.Fail(t.Context(), "no")
	default:
		*held = append(*held, l)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func notMoreThan(t *testing.T, err, allowed error) {
	t.Helper()
	if err != nil && !errors.Is(err, allowed) {
		t.Fatal(err)
	}
}

// listsAreNewestFirst checks the order of the lists: of live jobs by all, which are in the order
// of their submissions; of ended ones by their times, which are those of a clock that may go
// back by some milliseconds when it measures the server's again.
func (s *env) listsAreNewestFirst(t *testing.T, all []job.ID) {
	t.Helper()
	live := s.pages(t, s.q.Lists.Live, ListOptions{Most: 9})
	live = slices.DeleteFunc(live, func(j job.Job) bool { return j.Attempt > 1 })
	if !slices.IsSortedFunc(live, func(a, b job.Job) int { return slices.Index(all, b.ID) - slices.Index(all, a.ID) }) {
		t.Errorf("live jobs are not sorted by when they were queued: %v", live)
	}
	ended := s.pages(t, s.q.Lists.Ended, ListOptions{Most: 9})
	for i := 1; i < len(ended); i++ {
		if newer, older := ended[i-1], ended[i]; older.Finished.Sub(newer.Finished) > 100*time.Millisecond {
			t.Errorf("got %s, which ended at %s, before %s, which ended at %s", newer.ID, newer.Finished, older.ID, older.Finished)
		}
	}
}

func TestListsHideWhatIsGone(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Retention = time.Second })
	s.submit(t)
	if _, err := next(t, s.consumer(t, s.q, "w")).Complete(t.Context(), json.RawMessage(`{"secret":1}`)); err != nil {
		t.Fatal(err)
	}
	if got := s.pages(t, s.q.Lists.Ended, ListOptions{Most: 5}); len(got) != 1 || got[0].Output != nil {
		t.Fatalf("got %+v, want the finished job without its output", got)
	}
	testenv.Eventually(t, "the result's retention is over", func() bool { return len(s.pages(t, s.q.Lists.Ended, ListOptions{Most: 5})) == 0 })
	waits := s.submit(t)
	if _, err := s.q.SetTTL(t.Context(), s.e, waits, job.MinChangedTTL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the waiting job expires", func() bool { return len(s.pages(t, s.q.Lists.Live, ListOptions{Most: 5})) == 0 })
}

func TestListsDuringAnOutage(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.submit(t)
	s.Stop()
	for name, list := range map[string]lister{"live": s.q.Lists.Live, "ended": s.q.Lists.Ended} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, _, err := list(ctx, s.e, ListOptions{Most: 1}); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("%s: got %v, want bus.ErrUnavailable", name, err)
		}
		cancel()
	}
	s.Start()
	if got := s.pages(t, s.q.Lists.Live, ListOptions{Most: 1}); len(got) != 1 {
		t.Errorf("afterwards: got %v, want the job", got)
	}
}
