package events

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/bus"
	"flightline/shared/bus/barrier"
	"flightline/shared/job"
	"flightline/shared/stats"
	"flightline/shared/testenv"
	"flightline/streams"
)

// noon is when the jobs of these tests are, clock a server's time that a test moves.
var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// A span that ends within the first second of an hour has that hour, too.
func TestTheBlockInWhichASpanEndsIsRead(t *testing.T) {
	for ends, want := range map[time.Duration]int{0: 1, time.Millisecond: 2, time.Second: 2, time.Hour: 2, time.Hour + 1: 3} {
		if got := keysWithin([]string{"ep"}, streams.StatsFailures, noon.Add(-time.Minute), noon.Add(ends)); len(got) != want {
			t.Errorf("to noon and %v: got %d blocks, want %d", ends, len(got), want)
		}
	}
}

type clock struct{ ms atomic.Int64 }

func newClock(t time.Time) *clock {
	c := &clock{}
	c.ms.Store(t.UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// runs is what happens to the n-th job of an endpoint: it waits for a second, runs for
// two and fails or completes in the minute of its number.
func runs(endpoint string, n int, failure string) []Event {
	at := noon.Add(time.Duration(n) * time.Minute)
	e := Event{
		Endpoint: endpoint, Job: job.ID(fmt.Sprintf("%s-%d", endpoint, n)), Attempt: 1, Mode: job.Async, Class: job.Normal,
		Submitted: at, Queued: at, Expires: at.Add(time.Hour),
	}
	queued, started, end := e, e, e
	queued.Kind, queued.At, queued.Status = Queued, at, job.InQueue
	started.Kind, started.Run, started.At, started.Status, started.Worker = Started, 1, at.Add(time.Second), job.InProgress, "w1"
	started.Started = started.At
	end.Kind, end.Run, end.At, end.Status, end.Worker, end.Started = Completed, 1, at.Add(3*time.Second), job.Completed, "w1", started.At
	end.Finished, end.RetainUntil = end.At, end.At.Add(24*time.Hour)
	if failure != "" {
		end.Kind, end.Status, end.Error = Failed, job.Failed, failure
	}
	return []Event{queued, started, end}
}

// foldAll folds all that is in the log, and writes it.
func foldAll(t *testing.T, f *fold, c *clock) error {
	t.Helper()
	for {
		full, err := f.step(t.Context())
		if err == nil {
			c.advance(saveInterval)
			err = f.stats.keep(t.Context(), f.after)
		}
		if err != nil || !full {
			return err
		}
	}
}

// shown is a point as this test compares it.
func shown(p PointAt) string {
	return fmt.Sprintf("%s: %d submitted, %d completed, %d failed, delay %v of %d, execution %v of %d", p.At.Format("15:04"), p.Submitted, p.Completed, p.Failed,
		p.Delay.Quantile(0.5), p.Delay.Count(), p.Execution.Quantile(0.5), p.Execution.Count())
}

func TestPointsByMinuteAndByHour(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l, c := open(t, b), newClock(noon.Add(3*time.Hour))
	f := newFold(l, Counting{Now: c.now})
	for _, n := range []int{0, 1, 1, 75} {
		list := runs("ep", n, "")
		if n == 75 {
			list = runs("ep", n, "no file 7")
		}
		if err := l.Append(t.Context(), list...); err != nil {
			t.Fatal(err)
		}
	}
	if err := foldAll(t, f, c); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[time.Duration][]string{
		time.Minute: {
			"12:00: 1 submitted, 1 completed, 0 failed, delay 1.008s of 1, execution 2.016s of 1",
			"12:01: 2 submitted, 2 completed, 0 failed, delay 1.008s of 2, execution 2.016s of 2",
			"13:15: 1 submitted, 0 completed, 1 failed, delay 1.008s of 1, execution 2.016s of 1",
		},
		time.Hour: {
			"12:00: 3 submitted, 3 completed, 0 failed, delay 1.008s of 3, execution 2.016s of 3",
			"13:00: 1 submitted, 0 completed, 1 failed, delay 1.008s of 1, execution 2.016s of 1",
		},
	} {
		points, err := l.Points(t.Context(), "ep", noon, noon.Add(2*time.Hour), step)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range points {
			got = append(got, shown(p))
		}
		if delta := cmp.Diff(want, got); delta != "" {
			t.Errorf("by %v: %s", step, delta)
		}
	}
	if points, err := l.Points(t.Context(), "ep", noon.Add(time.Minute), noon.Add(75*time.Minute), time.Minute); err != nil || len(points) != 1 {
		t.Errorf("a part: got %v and %v, want one point", points, err)
	}
	failures, err := l.Failures(t.Context(), []string{"ep", "none"}, noon, noon.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	at := noon.Add(75*time.Minute + 3*time.Second).UnixMilli()
	want := map[string]stats.Failures{"ep": {{Fingerprint: stats.Fingerprint("no file 8"), Cause: "no file 7", Count: 1, First: at, Last: at, LastJobs: []string{"ep-75"}}}}
	if delta := cmp.Diff(want, failures); delta != "" {
		t.Error(delta)
	}
	if err := l.DropStats(t.Context(), "ep"); err != nil {
		t.Fatal(err)
	}
	if points, err := l.Points(t.Context(), "ep", noon, noon.Add(2*time.Hour), time.Hour); err != nil || len(points) != 0 {
		t.Errorf("after the endpoint's end: got %v and %v", points, err)
	}
}

// Folds that end anywhere, go back to a position, or run at once: the sums of STATS are
// those of the counts.
func TestStatsAreTheCountsWhateverHappens(t *testing.T) {
	t.Parallel()
	const jobs = 120
	b := newBus(t)
	l, c := open(t, b), newClock(noon.Add(3*time.Hour))
	broken := errors.New("broken")
	for i := range jobs {
		failure := ""
		if i%3 == 0 {
			failure = "KeyError: 'x'"
		}
		if err := l.Append(t.Context(), runs(fmt.Sprintf("ep%d", i%2), i%60, failure)...); err != nil {
			t.Fatal(err)
		}
		if i%10 != 9 {
			continue
		}
		dying, calls := newFold(open(t, b), Counting{Now: c.now}), 0
		dying.Durable, dying.stats.Durable = failing(&calls, i/10, broken), failing(&calls, i/10, broken)
		for range 3 {
			if err := foldAll(t, dying, c); err != nil && !errors.Is(err, broken) && !errors.Is(err, errChanged) {
				t.Fatal(err)
			} else if err != nil {
				dying.placed = false
			}
		}
		if i%20 == 9 { // as after a crash before the position was written
			if err := l.setPosition(t.Context(), statsPosition, uint64(i/3)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var folds []*fold
	for range 3 {
		folds = append(folds, newFold(open(t, b), Counting{Now: c.now}))
	}
	for range 4 { // two of them lose each race
		for _, f := range folds {
			if err := foldAll(t, f, c); err != nil {
				f.placed = false
			}
		}
	}
	for i := range 2 {
		endpoint := fmt.Sprintf("ep%d", i)
		totals, err := l.Totals(t.Context(), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []time.Duration{time.Minute, time.Hour} {
			points, err := l.Points(t.Context(), endpoint, noon, noon.Add(2*time.Hour), step)
			if err != nil {
				t.Fatal(err)
			}
			var sum stats.Point
			for _, p := range points {
				sum.Merge(p.Point)
			}
			got := Totals{Completed: sum.Completed, Failed: sum.Failed, Cancelled: sum.Cancelled, TimedOut: sum.TimedOut, Retried: sum.Retried}
			if got != totals || totals.Completed+totals.Failed != jobs/2 {
				t.Errorf("%s by %v: got %+v, want %+v", endpoint, step, got, totals)
			}
			if sum.Submitted != jobs/2 || sum.Delay.Count() != jobs/2 || sum.Execution.Count() != jobs/2 {
				t.Errorf("%s by %v: got %d submitted, %d delays, %d executions, want %d", endpoint, step, sum.Submitted, sum.Delay.Count(), sum.Execution.Count(), jobs/2)
			}
		}
		failures, err := l.Failures(t.Context(), []string{endpoint}, noon, noon.Add(2*time.Hour))
		if err != nil || len(failures[endpoint]) != 1 || failures[endpoint][0].Count != totals.Failed {
			t.Errorf("%s: got failures %+v and %v, want %d", endpoint, failures, err, totals.Failed)
		}
	}
}

// failing fails the n-th call of several functions that share calls.
func failing(calls *int, n int, err error) barrier.Func {
	return func(context.Context, string) error {
		*calls++
		if *calls == n+1 {
			return err
		}
		return nil
	}
}

// A job of an endpoint that was deleted is not its successor's.
func TestStatsOfADeletedEndpointEnd(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l, c := open(t, b), newClock(noon.Add(3*time.Hour))
	f := newFold(l, Counting{Now: c.now})
	if err := l.DropCounts(t.Context(), "ep", noon.Add(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if err := l.Append(t.Context(), runs("ep", n, "no")...); err != nil {
			t.Fatal(err)
		}
	}
	if err := foldAll(t, f, c); err != nil {
		t.Fatal(err)
	}
	points, err := l.Points(t.Context(), "ep", noon, noon.Add(time.Hour), time.Minute)
	if err != nil || len(points) != 1 || points[0].Failed != 1 {
		t.Errorf("got %+v and %v, want one failure", points, err)
	}
}

// What a fold has in memory of an endpoint that is deleted is not written afterwards: its
// successor would have it.
func TestStatsOfADeletedEndpointStayDropped(t *testing.T) {
	t.Parallel()
	sampled := Counting{Sample: func(context.Context) ([]stats.Sample, error) {
		return []stats.Sample{{Endpoint: "ep", Workers: 1}}, nil
	}}
	for name, test := range map[string]struct {
		counting Counting
		before   []Event // are in the log before the deletion
		after    []Event // come into it later, as from a recorder that was behind
		waits    time.Duration
	}{
		"nothing is written":              {before: runs("ep", 0, "no")},
		"all but the hours are written":   {before: runs("ep", 0, "no"), waits: statsInterval},
		"samples, and nothing is written": {counting: sampled},
		"events that come late":           {before: runs("ep", 0, "")[:1], after: runs("ep", 1, "")[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := open(t, newBus(t)), newClock(noon.Add(5*time.Minute))
			test.counting.Now = c.now
			f := newFold(l, test.counting)
			appendAll := func(list []Event) {
				t.Helper()
				if len(list) == 0 {
					return
				}
				if err := l.Append(t.Context(), list...); err != nil {
					t.Fatal(err)
				}
			}
			appendAll(test.before)
			if _, err := f.step(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.advance(test.waits)
			if err := f.stats.keep(t.Context(), f.after); err != nil {
				t.Fatal(err)
			}
			if err := l.DropCounts(t.Context(), "ep", c.now()); err != nil {
				t.Fatal(err)
			}
			if err := l.DropStats(t.Context(), "ep"); err != nil {
				t.Fatal(err)
			}
			f.stats.Sample = nil // its workers are gone
			appendAll(test.after)
			for range 3 {
				if err := foldAll(t, f, c); errors.Is(err, errChanged) {
					f.placed = false
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if state, err := l.bus.StreamState(t.Context(), streams.Stats); err != nil || state.Messages != 0 {
				t.Errorf("got %d blocks and %v, want none", state.Messages, err)
			}
			// The next endpoint of the id has its own.
			next := runs("ep", 10, "")
			appendAll(next)
			if err := foldAll(t, f, c); err != nil {
				t.Fatal(err)
			}
			for _, step := range []time.Duration{time.Minute, time.Hour} {
				points, err := l.Points(t.Context(), "ep", noon, noon.Add(2*time.Hour), step)
				if err != nil || len(points) != 1 || points[0].Submitted != 1 || points[0].Completed != 1 {
					t.Errorf("by %v: got %+v and %v, want the one job of the next endpoint", step, points, err)
				}
			}
		})
	}
}

// Several recorders that look at the workers at once count each look once.
func TestSamplesCountOnce(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	c := newClock(noon)
	counting := Counting{Now: c.now, Sample: func(context.Context) ([]stats.Sample, error) {
		return []stats.Sample{{Endpoint: "ep", Workers: 3, BusyGPUs: 2}}, nil
	}}
	folds := []*fold{newFold(open(t, b), counting), newFold(open(t, b), counting)}
	for range 8 {
		for _, f := range folds {
			if _, err := f.step(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.stats.written = time.Time{}
			if err := f.stats.keep(t.Context(), f.after); errors.Is(err, errChanged) {
				f.placed = false
			} else if err != nil {
				t.Fatal(err)
			}
		}
		c.advance(sampleInterval / 2)
	}
	points, err := open(t, b).Points(t.Context(), "ep", noon, noon.Add(time.Hour), time.Minute)
	if err != nil || len(points) != 1 || points[0].Workers != 3 || points[0].BusyGPUSeconds != 120 {
		t.Errorf("got %+v and %v, want 3 workers and 120 s in one point", points, err)
	}
}

// Hours have the looks at the workers that minutes have, also if the recorder changes each
// minute or begins again after a failed write.
func TestSamplesOutliveTheRecorder(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	c := newClock(noon)
	counting := Counting{Now: c.now, Sample: func(context.Context) ([]stats.Sample, error) {
		return []stats.Sample{{Endpoint: "ep", Workers: 3, BusyGPUs: 2}}, nil
	}}
	const recorders, steps = 10, 11
	for range recorders { // each for 55 s
		f := newFold(open(t, b), counting)
		for i := range steps {
			if _, err := f.step(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, block := range f.stats.known {
				if i == 1 && block.changed { // as if another process had written it
					block.revision++
				}
			}
			if err := f.stats.keep(t.Context(), f.after); i == 1 && errors.Is(err, errChanged) {
				f.placed = false
			} else if err != nil {
				t.Fatal(err)
			}
			c.advance(statsInterval)
		}
	}
	looks := int64((recorders*steps*statsInterval + sampleInterval - 1) / sampleInterval)
	for _, step := range []time.Duration{time.Minute, time.Hour} {
		points, err := open(t, b).Points(t.Context(), "ep", noon, noon.Add(time.Hour), step)
		var sum stats.Point
		for _, p := range points {
			sum.Merge(p.Point)
		}
		if want := looks * 2 * int64(sampleInterval/time.Second); err != nil || sum.Workers != 3 || sum.BusyGPUSeconds != want {
			t.Errorf("by %v: got %d workers, %d s and %v, want 3 and %d s", step, sum.Workers, sum.BusyGPUSeconds, err, want)
		}
	}
}

// Failures of many endpoints are read hour by hour, also of an hour in which more have
// failed than one request may answer. An endpoint that was not asked for stays out.
func TestFailuresOfManyEndpoints(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	const failed = bus.MaxMatches + 1
	ids := make([]string, failed)
	for i := range ids {
		ids[i] = fmt.Sprintf("ep-%d", i)
		hours := []time.Time{noon}
		if i < 3 {
			hours = append(hours, noon.Add(time.Hour))
		}
		for _, at := range hours {
			subject := keyAt(ids[i], streams.StatsFailures, "", at).subject()
			if _, err := b.JS.Publish(t.Context(), subject, []byte(`{"seq":1,"failures":[{"cause":"no","count":1}]}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := l.Failures(t.Context(), append(ids[1:], "none"), noon.Add(-time.Hour), noon.Add(2*time.Hour))
	if err != nil || len(got) != failed-1 || got[ids[0]] != nil || len(got["none"]) > 0 {
		t.Fatalf("got the failures of %d endpoints, and %v, want those of all but the first", len(got), err)
	}
	for _, id := range ids[1:] {
		want := int64(1)
		if id == ids[1] || id == ids[2] {
			want = 2
		}
		if len(got[id]) != 1 || got[id][0].Count != want {
			t.Errorf("%s: got %v, want %d failures", id, got[id], want)
		}
	}
}

// Blocks go when their time has come, also those that were written late.
func TestBlocksExpire(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l, c := open(t, b), newClock(noon.Add(streams.StatsByMinuteAge+time.Hour))
	f := newFold(l, Counting{Now: c.now})
	if err := l.Append(t.Context(), runs("ep", 0, "no")...); err != nil {
		t.Fatal(err)
	}
	if err := foldAll(t, f, c); err != nil {
		t.Fatal(err)
	}
	state, err := l.bus.StreamState(t.Context(), streams.Stats)
	if err != nil || state.Messages != 1 {
		t.Errorf("got %d blocks and %v, want that of hours", state.Messages, err)
	}
	key := keyAt("ep", streams.StatsMinutes, "", c.now().Add(-streams.StatsByMinuteAge-10*time.Minute-time.Second))
	if err := f.stats.put(t.Context(), key, &knownBlock{}); err != nil { // its ttl is the least that there is
		t.Fatal(err)
	}
	testenv.Eventually(t, "the block expires", func() bool {
		state, err := l.bus.StreamState(t.Context(), streams.Stats)
		return err == nil && state.Messages == 1
	})
}

// What the log costs the fold, and a page of it with STATS.
func BenchmarkFold(b *testing.B) {
	var list []Event
	for n := range 500 {
		list = append(list, runs("ep", n%3, "")...)
	}
	entry := Entry{Seq: 1, Written: noon, Endpoint: "ep", Events: list}
	b.Run("counts", func(b *testing.B) {
		for i := range b.N {
			entry.Seq = uint64(i + 1)
			_ = counts{}.with(entry)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*500), "ns/job")
	})
	b.Run("stats", func(b *testing.B) {
		f := newStatsFold(&Log{}, Counting{Now: func() time.Time { return noon }}, nil)
		for _, at := range []time.Time{noon, noon.Add(3 * time.Minute)} {
			for _, key := range []blockKey{keyAt("ep", streams.StatsMinutes, "", at), keyAt("ep", streams.StatsHours, "", at), keyAt("ep", streams.StatsWorker, "w1", at)} {
				f.known[key] = &knownBlock{}
			}
		}
		for i := range b.N {
			entry.Seq = uint64(i + 1)
			if err := f.add(b.Context(), 0, []Entry{entry}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*500), "ns/job")
	})
}
