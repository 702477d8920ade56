package recorder

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
)

func at(s int64) time.Time { return time.Unix(s, 0) }

// fact is one of a job that was queued at 10, and expires at 100.
func fact(change func(*queue.RecordChange)) queue.RecordChange {
	f := queue.RecordChange{
		Job: job.Job{
			ID: "j", Endpoint: "ep", Status: job.InQueue, Attempt: 1, Mode: job.Async, Class: job.Normal,
			Submitted: at(10), Queued: at(10), Expires: at(100),
		},
		Written: at(50),
	}
	if change != nil {
		change(&f)
	}
	return f
}

func runs(starts ...int64) func(*queue.RecordChange) {
	return func(f *queue.RecordChange) {
		f.Job.Run, f.Job.Status, f.Job.Worker = len(starts), job.InProgress, "w"
		for _, s := range starts {
			if s == 0 {
				f.Starts = append(f.Starts, time.Time{})
				continue
			}
			f.Starts = append(f.Starts, at(s))
			f.Job.Started = at(s)
		}
	}
}

func ends(status job.Status, finished int64, starts ...int64) func(*queue.RecordChange) {
	return func(f *queue.RecordChange) {
		runs(starts...)(f)
		f.Job.Status, f.Job.Finished, f.Job.RetainUntil = status, at(finished), at(finished+30)
	}
}

func TestWhatAFactTells(t *testing.T) {
	tests := map[string]struct {
		f    queue.RecordChange
		want []string
	}{
		"it waits":          {fact(nil), []string{"queued 0 at 10"}},
		"it runs":           {fact(runs(20)), []string{"queued 0 at 10", "started 1 at 20 by w"}},
		"it runs again":     {fact(runs(20, 30)), []string{"queued 0 at 10", "started 1 at 20", "started 2 at 30 by w"}},
		"it waits again":    {fact(func(f *queue.RecordChange) { runs(20)(f); f.Job.Status = job.InQueue }), []string{"queued 0 at 10", "started 1 at 20 by w"}},
		"a forgotten start": {fact(runs(0, 0, 30)), []string{"queued 0 at 10", "started 1 at 10", "started 2 at 10", "started 3 at 30 by w"}},
		"completed":         {fact(ends(job.Completed, 40, 20)), []string{"queued 0 at 10", "started 1 at 20 by w", "completed 1 at 40 by w"}},
		"failed":            {fact(ends(job.Failed, 40, 20)), []string{"queued 0 at 10", "started 1 at 20 by w", "failed 1 at 40 by w"}},
		"timed out":         {fact(ends(job.TimedOut, 40, 20)), []string{"queued 0 at 10", "started 1 at 20 by w", "timed_out 1 at 40 by w"}},
		"cancelled unseen":  {fact(func(f *queue.RecordChange) { ends(job.Cancelled, 40)(f); f.Job.Worker = "" }), []string{"queued 0 at 10", "cancelled 0 at 40"}},
		"stored too late":   {fact(func(f *queue.RecordChange) { ends(job.Completed, 99, 20)(f); f.Written = at(100) }), []string{"queued 0 at 10", "started 1 at 20 by w"}},
		"a ttl cut afterwards": {
			fact(func(f *queue.RecordChange) { ends(job.Completed, 40, 20)(f); f.Job.Expires, f.Touch = at(30), true }),
			[]string{"queued 0 at 10", "started 1 at 20 by w", "completed 1 at 40 by w"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range eventsOf(tt.f) {
				text := fmt.Sprintf("%s %d at %d", e.Kind, e.Run, e.At.Unix())
				if e.Worker != "" {
					text += " by " + e.Worker
				}
				got = append(got, text)
				if e.Endpoint != "ep" || e.Job != "j" || e.Attempt != 1 || e.Status == "" || e.Submitted.IsZero() {
					t.Errorf("%s lacks what every event has: %+v", e.Kind, e)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestEventsCountRetriesOfAllAttempts(t *testing.T) {
	t.Parallel()
	f := fact(ends(job.Failed, 40, 20, 30))
	f.Job.Attempt, f.Job.Earlier = 2, 3
	var got []int
	for _, e := range eventsOf(f) {
		got = append(got, e.Retries)
	}
	f.Job.Run = 2
	if want := f.Job.Retries(); got[len(got)-1] != want {
		t.Errorf("got %v, want %d in the end", got, want)
	}
	for i := 1; i < len(got); i++ {
		if got[i] < got[i-1] {
			t.Errorf("got %v, want it to grow", got)
		}
	}
}

func TestWhatTheLogHasIsNotAppendedAgain(t *testing.T) {
	t.Parallel()
	running, over := fact(runs(20)), fact(ends(job.Completed, 40, 20))
	changed := over
	changed.Touch = true
	of := func(f queue.RecordChange, events int, over bool) loggedEvents {
		return loggedEvents{attemptOf(f): {events: events, over: over}}
	}
	for name, tt := range map[string]struct {
		inLog loggedEvents
		f     queue.RecordChange
		want  int
		known bool
	}{
		"nothing of a run":                  {loggedEvents{}, running, 2, true},
		"nothing of an end":                 {loggedEvents{}, over, 3, true},
		"nothing, or all, of a changed end": {loggedEvents{}, changed, 3, false},
		"the queued event":                  {of(running, 1, false), running, 1, true},
		"all of a run":                      {of(running, 2, false), running, 0, true},
		"the run of an end":                 {of(over, 2, false), over, 1, true},
		"the run of a changed end":          {of(over, 2, false), changed, 1, true},
		"the end":                           {of(over, 3, true), over, 0, true},
		"a changed end":                     {of(over, 3, true), changed, 0, true},
	} {
		got, known := tt.inLog.missing(tt.f)
		if len(got) != tt.want || known != tt.known {
			t.Errorf("%s: got %d events, %t, want %d, %t", name, len(got), known, tt.want, tt.known)
		}
	}
	k := loggedEvents{}
	k.addChange(running)
	if got := k.checkpoint(at(50)); len(got) != 1 || got[0].Events != 2 || got[0].Job != "j" {
		t.Errorf("got the checkpoint %+v, want the run", got)
	}
	if got := loggedEventsAt(events.Checkpoint{Unfinished: k.checkpoint(at(50))}); !cmp.Equal(got, k, cmp.AllowUnexported(progress{}, attempt{})) {
		t.Errorf("got %+v from the checkpoint, want %+v", got, k)
	}
	if got := k.checkpoint(at(100).Add(expiredAge + time.Second)); len(got)+len(k) > 0 {
		t.Errorf("got %+v of an attempt that expired long ago, want none", got)
	}
	k.addChange(running)
	k.addChange(over)
	if len(k) != 0 {
		t.Errorf("a finished attempt is remembered: %v", k)
	}
}

// After a failure a recorder reads changes again; what another one has recorded since, it
// has read from the log before.
func TestAnEarlierChangeTakesNothingBackThatTheLogHas(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]queue.RecordChange{
		"another run": fact(runs(20, 30)), "its end": fact(ends(job.Completed, 40, 20)),
	} {
		inLog := loggedEvents{}
		inLog.addEntry(events.Entry{Events: eventsOf(later)})
		inLog.addChange(fact(runs(20)))
		if got, known := loggedEventsAt(events.Checkpoint{Unfinished: inLog.checkpoint(at(50))}).missing(later); len(got) > 0 || !known {
			t.Errorf("%s: got %v, %t, want that the log has all of it", name, got, known)
		}
	}
}

func TestOnlyTheNewestFactOfAnAttemptIsRecorded(t *testing.T) {
	t.Parallel()
	a1, b, a2 := fact(runs(20)), fact(nil), fact(ends(job.Completed, 40, 20))
	a1.Seq, b.Seq, a2.Seq = 1, 2, 3
	b.Job.Attempt = 2
	var got []uint64
	for _, f := range newest([]queue.RecordChange{a1, b, a2}) {
		got = append(got, f.Seq)
	}
	if diff := cmp.Diff([]uint64{2, 3}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFactsWithoutWebhooksAreNotCopied(t *testing.T) { //nolint:paralleltest // it counts allocations
	facts := []queue.RecordChange{fact(runs(20)), fact(ends(job.Completed, 40, 20))}
	if n := testing.AllocsPerRun(100, func() { splitByCopies(facts) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// What is due but not yet recorded for good has to stay.
func TestOnlyWhatIsDueAndRecordedIsReady(t *testing.T) {
	t.Parallel()
	s := &Service{parts: make([]partition, 2)}
	s.parts[0].saved.Store(10)
	s.parts[1].saved.Store(5)
	r := newRemovalQueue(s)
	for _, d := range []due{{1000, 3, 0}, {1000, 6, 1}, {900, 10, 0}, {1000, 11, 0}, {2000, 4, 0}, {950, 5, 1}} {
		r.push(d)
	}
	seqs := func(list []due) (seqs []uint64) {
		for _, d := range list {
			seqs = append(seqs, d.seq)
		}
		return seqs
	}
	if diff := cmp.Diff([]uint64{10, 5, 3}, seqs(r.ready(time.UnixMilli(1000)))); diff != "" {
		t.Error(diff)
	}
	s.parts[1].saved.Store(6)
	if diff := cmp.Diff([]uint64{6, 4}, seqs(r.ready(time.UnixMilli(2000)))); diff != "" {
		t.Error(diff)
	}
	if len(r.entries) != 1 || r.entries[0].seq != 11 {
		t.Errorf("got %v left, want what is not recorded", r.entries)
	}
}

func BenchmarkRetention(b *testing.B) {
	s := &Service{parts: make([]partition, 1)}
	s.parts[0].saved.Store(1 << 62)
	r := newRemovalQueue(s)
	for i := range 1_000_000 {
		r.push(due{at: int64(i), seq: uint64(i)})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.push(due{at: int64(i), seq: 1})
		r.ready(time.UnixMilli(0))
	}
}
