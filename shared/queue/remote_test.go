package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/shared/testenv"
)

func always() bool { return true }

func never(job.ID) bool { return false }

// handed is a job that was handed to a worker by one process, as another one
// takes it up.
func (s *env) handed(t *testing.T, worker string, change ...func(*job.Request)) (job.ID, *Lease) {
	t.Helper()
	id := s.submit(t, change...)
	consumer := s.q.Remote.Consume(s.e, worker, time.Minute)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	got, err := consumer.NextIf(ctx, always, never, false)
	if err != nil || got.Job.ID != id {
		t.Fatalf("got %+v, %v, want %s", got, err, id)
	}
	l, err := s.queue(t, Config{}).Remote.LeaseOf(t.Context(), s.e, id, worker)
	if err != nil {
		t.Fatal(err)
	}
	return id, l
}

func TestAnyProcessTakesALeaseUp(t *testing.T) {
	s := newEnv(t)
	outcomes := map[string]struct {
		do           func(*Lease) error
		want         job.Status
		output, text string
	}{
		"complete":  {func(l *Lease) error { _, err := l.Complete(t.Context(), []byte(`{"a": 1}`)); return err }, job.Completed, `{"a":1}`, ""},
		"fail":      {func(l *Lease) error { _, err := l.Fail(t.Context(), "no"); return err }, job.Failed, "", "no"},
		"give back": {func(l *Lease) error { return l.Release(t.Context()) }, job.InQueue, "", ""},
		"progress":  {func(l *Lease) error { return l.Progress(t.Context(), []byte(`1`)) }, job.InProgress, "1", ""},
	}
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			id, l := s.handed(t, "w")
			if err := tc.do(l); err != nil {
				t.Fatal(err)
			}
			j, err := s.q.Status(t.Context(), s.e, id)
			if err != nil || j.Status != tc.want || string(j.Output) != tc.output || j.Error != tc.text {
				t.Errorf("got %+v, %v, want %s, %s, %q", j, err, tc.want, tc.output, tc.text)
			}
			if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil && !errors.Is(err, job.ErrConflict) {
				t.Fatal(err) // so that the next one finds an empty queue
			}
		})
	}
}

func TestARetryAfterAFarFailureHasItsInput(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]json.RawMessage{
		"inline": json.RawMessage(`{"a":1}`),
		"beside": json.RawMessage(fmt.Sprintf(`{"a":%q}`, make([]byte, maxInlinePayload))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			secret := json.RawMessage(`{"accessId":"a"}`)
			id, l := s.handed(t, "w", func(r *job.Request) { r.Input, r.S3Config = input, secret })
			if _, err := l.Fail(t.Context(), "no"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
				t.Fatal(err)
			}
			again := next(t, s.consumer(t, s.q, "other"))
			if string(again.Input) != string(input) || string(again.S3Config) != string(secret) {
				t.Errorf("got %d bytes and %s, want %d and %s", len(again.Input), again.S3Config, len(input), secret)
			}
		})
	}
}

func TestHeldIsForTheHolderAlone(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id, l := s.handed(t, "w")
	waiting := s.submit(t)
	lost := func(what string, id job.ID, worker string, want NotHeldError) {
		t.Helper()
		_, err := s.q.Remote.LeaseOf(t.Context(), s.e, id, worker)
		got, ok := errors.AsType[*NotHeldError](err)
		if !ok || *got != want || !errors.Is(err, ErrLost) {
			t.Errorf("%s: got %v, want %+v", what, err, want)
		}
		if err := s.q.Remote.Heartbeat(t.Context(), s.e, id, worker); !errors.Is(err, ErrLost) {
			t.Errorf("%s: keep: got %v, want ErrLost", what, err)
		}
	}
	lost("another worker", id, "other", NotHeldError{job.InProgress, "w"})
	lost("waiting", waiting, "w", NotHeldError{job.InQueue, ""})
	lost("unknown", "no-such-job", "w", NotHeldError{})
	lost("no id", "a b", "w", NotHeldError{})
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	lost("ended", id, "w", NotHeldError{job.Completed, "w"})
}

func TestChunksOfSeveralProcessesAreInOrder(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id, one := s.handed(t, "w")
	two, err := s.queue(t, Config{}).Remote.LeaseOf(t.Context(), s.e, id, "w")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 6 {
		data := fmt.Sprintf(`{"output":%d}`, i)
		if err := []*Lease{one, two}[i%2].Emit(t.Context(), []byte(data)); err != nil {
			t.Fatal(err)
		}
		want = append(want, data)
	}
	f, err := chunks.Follow(s.q, s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, _, _, err := f.Read(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, string(c.Data))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	three, err := s.q.Remote.LeaseOf(t.Context(), s.e, id, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := three.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := s.q.read.raw(t.Context(), record.LocationOf(s.e), id)
	if err != nil || !r.Emitted {
		t.Errorf("got %+v, %v, want a record that tells of chunks", r, err)
	}
}

func TestASignOfLifeConfirmsARunOnce(t *testing.T) {
	s := newEnv(t)
	for name, sign := range map[string]func(context.Context, *Lease) error{
		"keep":     func(ctx context.Context, l *Lease) error { return s.q.Remote.Heartbeat(ctx, s.e, l.Job.ID, "w") },
		"extend":   func(ctx context.Context, l *Lease) error { return l.Extend(ctx) },
		"emit":     func(ctx context.Context, l *Lease) error { return l.Emit(ctx, []byte(`1`)) },
		"progress": func(ctx context.Context, l *Lease) error { return l.Progress(ctx, []byte(`1`)) },
	} {
		t.Run(name, func(t *testing.T) {
			id, l := s.handed(t, "w")
			before, err := s.q.read.raw(t.Context(), record.LocationOf(s.e), id)
			if err != nil || before.AckTimeout != s.e.Lease {
				t.Fatalf("got %v, %v, want the lease, as a minute is more", before.AckTimeout, err)
			}
			if err := sign(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			after, err := s.q.read.raw(t.Context(), record.LocationOf(s.e), id)
			if err != nil || after.AckTimeout != 0 || after.Seq == before.Seq {
				t.Errorf("got %v, %v, want it confirmed", after.AckTimeout, err)
			}
			if err := s.q.Remote.Heartbeat(t.Context(), s.e, id, "w"); err != nil {
				t.Fatal(err)
			}
			if again, err := s.q.read.raw(t.Context(), record.LocationOf(s.e), id); err != nil || again.Seq != after.Seq {
				t.Errorf("the second sign wrote the record again, %v", err)
			}
			if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// No lease is waited for: the driver of the worker saw that it has ended.
func TestTheJobOfAWorkerThatHasEndedWaitsAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease, e.MaxLost = time.Hour, 2 })
	id := s.submit(t)
	ends := func(received bool) *job.Job {
		t.Helper()
		consumer := s.q.Remote.Consume(s.e, "w", time.Hour)
		defer consumer.Close()
		if l, err := consumer.NextIf(t.Context(), always, never, false); err != nil || l.Job.ID != id {
			t.Fatalf("got %+v, %v, want %s", l, err, id)
		}
		if received {
			if err := s.q.Remote.Heartbeat(t.Context(), s.e, id, "w"); err != nil {
				t.Fatal(err)
			}
		}
		l, err := s.q.Remote.LeaseOf(t.Context(), s.e, id, "w")
		other, err2 := s.q.Remote.LeaseOf(t.Context(), s.e, id, "w")
		if err = errors.Join(err, err2); err == nil {
			err = l.WorkerEnded(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := other.WorkerEnded(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("by another process: got %v, want ErrLost", err)
		}
		return s.status(t, id)
	}
	for i, run := range []struct {
		received bool
		want     job.Status
		lost     int
	}{
		{false, job.InQueue, 0}, // it may not have been received (maxUndelivered)
		{true, job.InQueue, 1},
		{false, job.InQueue, 1},
		{false, job.Failed, 2},
	} {
		if j := ends(run.received); j.Status != run.want || j.Lost != run.lost || j.Run != i+1 {
			t.Errorf("run %d: got %s, lost %d, run %d, want %s, lost %d", i+1, j.Status, j.Lost, j.Run, run.want, run.lost)
		}
	}
	const want = "worker lost: this attempt was handed out 4 times, and 2 workers ended or fell silent while they ran it"
	if j := s.status(t, id); j.Error != want {
		t.Errorf("got %q, want %q", j.Error, want)
	}
	s.empty(t)
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Errorf("retry: got %v, want its input kept", err)
	}
}

func TestAJobThatTheWorkerStillRunsIsLeft(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	consumer := s.q.Remote.Consume(s.e, "busy", time.Minute)
	defer consumer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs := func(asked job.ID) bool {
		cancel()
		return asked == id
	}
	if l, err := consumer.NextIf(ctx, always, runs, false); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v, want that it waits for another job", l, err)
	}
	if l := next(t, s.consumer(t, s.q, "w")); l.Job.ID != id || l.Job.Run != 1 {
		t.Errorf("got %s, run %d, want %s, run 1", l.Job.ID, l.Job.Run, id)
	}
}

// A job whose worker was not heard of may be unreadable for all. It goes to the next one
// alone.
func TestAJobThatMayNotHaveBeenReceivedJoinsNoOthers(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	handed := func(inBatch bool) (*Lease, error) {
		consumer := s.q.Remote.Consume(s.e, "w", 200*time.Millisecond)
		defer consumer.Close()
		return consumer.NextIf(t.Context(), always, never, inBatch)
	}
	if l, err := handed(true); err != nil || l.Job.ID != id || l.Unreceived() {
		t.Fatalf("got %+v, %v, want %s, which was handed to nobody before", l, err, id)
	}
	for range 2 {
		if l, err := handed(true); !errors.Is(err, ErrClosed) {
			t.Fatalf("got %+v, %v, want ErrClosed", l, err)
		}
	}
	if l, err := handed(false); err != nil || l.Job.ID != id || l.Job.Run != 2 || !l.Unreceived() {
		t.Errorf("got %+v, %v, want run 2 of %s, whose first was not received", l, err, id)
	}
}

func TestAJobThatNobodyWantsAnyMoreIsLeft(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	consumer := s.q.Remote.Consume(s.e, "gone", time.Minute)
	defer consumer.Close()
	if l, err := consumer.NextIf(t.Context(), func() bool { return false }, never, false); !errors.Is(err, ErrClosed) {
		t.Errorf("got %+v, %v, want ErrClosed", l, err)
	}
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Run != 0 {
		t.Errorf("got %+v, %v, want it untouched", j, err)
	}
	if l := next(t, s.consumer(t, s.q, "w")); l.Job.ID != id {
		t.Errorf("got %s, want %s", l.Job.ID, id)
	}
}

func TestHaltedIsWhatSomebodyElseEnded(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	halted := func(what string, id job.ID, want string) {
		t.Helper()
		if got, err := s.q.Remote.StoppedWorker(t.Context(), s.e, id); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", what, got, err, want)
		}
	}
	id, l := s.handed(t, "w")
	halted("running", id, "")
	halted("unknown", "no-such-job", "")
	heard := make(chan job.ID, 1)
	stop, err := s.q.Remote.OnNudge(s.e, func(id job.ID) { heard <- id })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != id {
		t.Errorf("nudged for %s, want %s", got, id)
	}
	halted("cancelled", id, "w")
	if _, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	done, l := s.handed(t, "w")
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	halted("completed", done, "")
	failed, l := s.handed(t, "w")
	if _, err := l.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	halted("failed", failed, "")
	large, l := s.handed(t, "w")
	if _, err := l.Fail(t.Context(), job.ErrTextChunkTooLarge); err != nil {
		t.Fatal(err)
	}
	halted("failed for a chunk", large, "w")
	short, _ := s.handed(t, "w")
	if _, err := s.q.SetTTL(t.Context(), s.e, short, time.Millisecond); err != nil && !errors.Is(err, job.ErrNotFound) {
		t.Fatal(err)
	}
	testenv.Eventually(t, "its ttl is over", func() bool {
		_, err := s.q.Status(t.Context(), s.e, short)
		return errors.Is(err, job.ErrNotFound)
	})
	halted("expired", short, "w")
}

// A worker that pings a job while it ends learns how, whenever that is.
func TestAPingThatMeetsTheEndIsToldHow(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	for range 30 {
		id, _ := s.handed(t, "w")
		ended := make(chan error, 1)
		go func() {
			_, err := s.q.Cancel(t.Context(), s.e, id)
			ended <- err
		}()
		var err error
		for err == nil {
			err = s.q.Remote.Heartbeat(t.Context(), s.e, id, "w")
		}
		if _, ok := errors.AsType[*NotHeldError](err); !ok {
			t.Errorf("got %v, want a LostError", err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
