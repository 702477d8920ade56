package queue

import (
	"errors"
	"math/rand/v2"
	"testing"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestAheadOf(t *testing.T) {
	for name, tt := range map[string]struct {
		seq, delivered, last uint64
		pending              int
		want                 between
	}{
		"the first":                         {1, 0, 1, 1, between{0, 0}},
		"the last of a queue without gaps":  {10, 0, 10, 10, between{9, 9}},
		"in the middle of one without gaps": {4, 2, 10, 8, between{1, 1}},
		"gaps somewhere":                    {500, 100, 1000, 600, between{99, 399}},
		"gaps, more than jobs":              {500, 100, 1000, 3, between{0, 2}},
		"it came after the count":           {11, 0, 11, 0, between{0, 0}},
		"the end was read before it came":   {12, 0, 11, 12, between{11, 11}},
		"the next one":                      {5, 4, 9, 4, between{0, 0}},
	} {
		if got := aheadOf(tt.seq, tt.delivered, tt.last, tt.pending); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

// Whatever was handed out and cancelled before, the position of a job near an
// end is the number of jobs that are handed out before it.
func TestPositionIsTheOrderInWhichJobsAreHandedOut(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	w := s.consumer(t, s.q, "w")
	random := rand.New(rand.NewPCG(1, 2))
	var jobs []job.ID
	for i := range 60 {
		jobs = append(jobs, s.submit(t, func(r *job.Request) { r.Policy.LowPriority = random.IntN(3) == 0 }))
		switch {
		case i%10 == 9:
			if _, err := next(t, w).Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		case i%7 == 6:
			_, err := s.q.Cancel(t.Context(), s.e, jobs[random.IntN(len(jobs))])
			if err != nil && !errors.Is(err, job.ErrConflict) && !errors.Is(err, job.ErrNotFound) {
				t.Fatal(err)
			}
		}
	}
	testenv.Eventually(t, "the messages of all that ended are removed", func() bool {
		var waiting uint64
		for _, id := range jobs {
			if j, err := s.q.Status(t.Context(), s.e, id); err == nil && j.Status == job.InQueue {
				waiting++
			}
		}
		return s.Messages(t, streams.Jobs(s.e.ID)) == waiting
	})
	told := map[job.ID]Position{}
	for _, id := range jobs {
		p, err := s.q.Counts.Position(t.Context(), s.e, id)
		if err != nil {
			t.Fatal(err)
		}
		if p.Job.Status == job.InQueue {
			told[id] = p
		}
	}
	if len(told) < 30 {
		t.Fatalf("only %d jobs wait", len(told))
	}
	normal := 0
	for _, p := range told {
		if p.Job.Class == job.Normal {
			normal++
		}
	}
	for i, left := 0, len(told); left > 0; {
		l := next(t, w)
		p := told[l.Job.ID]
		if p.Job.Class == job.LowPriority && normal > 0 { // the answer with a normal one took more than lowAfter
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		left--
		if p.Job.Class == job.Normal {
			normal--
		}
		switch {
		case p.Offered: // a pull held it and gave it back: it comes again at any time
		case p.Least != i || p.Most != i:
			t.Errorf("the one handed out after %d of %d: got %+v", i, len(told), p)
			i++
		default:
			i++
		}
		if _, err := l.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// The middle of a long queue with gaps has bounds that hold.
func TestPositionFarFromBothEndsIsBounded(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	const n = 1500
	jobs := make([]job.ID, n)
	for i := range jobs {
		jobs[i] = s.submit(t)
	}
	at := func(i int) Position {
		t.Helper()
		p, err := s.q.Counts.Position(t.Context(), s.e, jobs[i])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := at(750); p.Least != 750 || p.Most != 750 {
		t.Errorf("without gaps: got %+v, want 750", p)
	}
	for _, i := range []int{10, 20, 1400} {
		if _, err := s.q.Cancel(t.Context(), s.e, jobs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range map[int]between{750: {747, 750}, 5: {5, 5}, 400: {398, 398}, 1450: {1447, 1447}, n - 1: {n - 4, n - 4}} {
		if p := at(i); p.Least != want.least || p.Most != want.most {
			t.Errorf("job %d: got %+v, want %+v", i, p, want)
		}
	}
}

func TestPositionOfJobsThatDoNotWait(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	if _, err := s.q.Counts.Position(t.Context(), s.e, "nobody"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	id, waiting := s.submit(t), s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	p, err := s.q.Counts.Position(t.Context(), s.e, id)
	if err != nil || p.Job.Status != job.InProgress || p.Job.Worker != "w" || p.Most != 0 || p.Offered {
		t.Errorf("running: got %+v, %v", p, err)
	}
	if _, err := l.Complete(t.Context(), []byte(`{"big":"output"}`)); err != nil {
		t.Fatal(err)
	}
	if p, err = s.q.Counts.Position(t.Context(), s.e, id); err != nil || p.Job.Status != job.Completed || p.Job.Output != nil {
		t.Errorf("over: got %+v, %v", p, err)
	}
	inbox := s.NC.NewInbox() // of somebody who takes the message and does nothing
	sub := testenv.Subscribe(t, s.NC, inbox)
	if err := sendPull(s.q.nc, s.e.ID, job.Normal, inbox, 1, soon); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(soon); err != nil {
		t.Fatal(err)
	}
	if p, err = s.q.Counts.Position(t.Context(), s.e, waiting); err != nil || !p.Offered || p.Job.Status != job.InQueue || p.Most != 0 {
		t.Errorf("handed out and not picked up: got %+v, %v", p, err)
	}
}

// What a position costs does not depend on how many jobs wait. Messages are
// counted, not time.
func TestThePositionInALongQueueCostsNoMore(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	q := s.queue(t, Config{})
	cost := func(id job.ID) int {
		t.Helper()
		least := 1 << 30
		for range 5 { // the clock's probes are counted too
			before := q.nc.Stats().OutMsgs
			if _, err := q.Counts.Position(t.Context(), s.e, id); err != nil {
				t.Fatal(err)
			}
			least = min(least, int(q.nc.Stats().OutMsgs-before))
		}
		return least
	}
	s.submitMany(t, 10)
	few := cost(s.submit(t))
	s.submitMany(t, 5000)
	middle, gap := s.submit(t), s.submit(t)
	s.submitMany(t, 5000)
	if many := cost(middle); many > few {
		t.Errorf("got %d requests, want as with ten jobs, %d", many, few)
	}
	if _, err := s.q.Cancel(t.Context(), s.e, gap); err != nil {
		t.Fatal(err)
	}
	if many := cost(middle); many > few {
		t.Errorf("with a gap: got %d requests, want as with ten jobs, %d", many, few)
	}
	if near := cost(s.submit(t)); near > few+positionScan+50 {
		t.Errorf("near the end of a queue with gaps: got %d requests, want %d at most", near, few+positionScan+50)
	}
}
