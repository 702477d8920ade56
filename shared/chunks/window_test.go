package chunks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/streams"
)

// persist repeats what JetStream did not answer, as a worker does.
func persist(try func() error) error {
	for {
		if err := try(); !errors.Is(err, bus.ErrUnavailable) {
			return err
		}
	}
}

// emitAll emits the numbers from 0 to n-1 as fast as it can, and ends the job.
func emitAll(t *testing.T, l *queue.Lease, n int) {
	t.Helper()
	for i := range n {
		if err := persist(func() error { return l.Emit(t.Context(), json.RawMessage(fmt.Sprint(i))) }); err != nil {
			t.Errorf("chunk %d: %v", i, err)
			return
		}
	}
	complete(t, l)
}

func complete(t *testing.T, l *queue.Lease) {
	t.Helper()
	if err := persist(func() error { _, err := l.Complete(t.Context(), nil); return err }); err != nil {
		t.Error(err)
	}
}

// wantAll fails unless the job is COMPLETED and readers get the numbers from 0 to
// n-1, in order and each once.
func (s *env) wantAll(t *testing.T, id job.ID, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	got, j, err := (&reader{f: s.follow(t, s.q, id)}).all(ctx)
	if err != nil || j.Status != job.Completed {
		t.Fatalf("got %v, %v, want COMPLETED", j, err)
	}
	for i, c := range got {
		if c != fmt.Sprint(i) {
			t.Fatalf("chunk %d is %s", i, c)
		}
	}
	if len(got) != n {
		t.Fatalf("got %d chunks, want %d", len(got), n)
	}
}

func TestChunksThatComeFastShareMessages(t *testing.T) {
	t.Parallel()
	const n = 20_000
	s := newEnv(t)
	id := s.submit(t)
	emitAll(t, next(t, s.consumer(t, s.q, "w")), n)
	s.wantAll(t, id, n)
	if got := s.Messages(t, streams.Output(0)); got > n/10 {
		t.Errorf("got %d messages for %d chunks, want at most a tenth", got, n)
	}
}

func TestAChunkIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	r := &reader{f: s.follow(t, s.q, id)}
	for i := range 3 {
		began := time.Now()
		if err := l.Emit(t.Context(), json.RawMessage(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		r.want(t, job.InProgress, fmt.Sprint(i))
		if took := time.Since(began); took > chunks.PollInterval-time.Second {
			t.Errorf("it was told after %v, want nothing to be waited for", took)
		}
	}
}

// A reader may come back behind any chunk.
func TestEveryChunkIsACursor(t *testing.T) {
	t.Parallel()
	const n = 1500
	s := newEnv(t)
	id := s.submit(t)
	emitAll(t, next(t, s.consumer(t, s.q, "w")), n)
	all := backend.Chunks(t, s.q, s.e, id)
	if len(all) != n {
		t.Fatalf("got %d chunks, want %d", len(all), n)
	}
	f := s.follow(t, s.q, id)
	for i, c := range all[:n-1] {
		rest, _, _, err := f.Read(t.Context(), c.Seq, 1)
		if err != nil || len(rest) == 0 || string(rest[0].Data) != fmt.Sprint(i+1) {
			t.Fatalf("after chunk %d: got %.100v, %v, want the next one", i, rest, err)
		}
	}
	seen := map[uint64]bool{}
	for _, c := range all {
		if seen[c.Seq] || c.Seq >= 1<<53 {
			t.Fatalf("the cursor %d is there twice, or too large", c.Seq)
		}
		seen[c.Seq] = true
	}
}

func TestAnOutageInMidWindowLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const n = 100_000
	for name, outage := range map[string]func(*testing.T, *env){
		"the server is stopped": func(_ *testing.T, s *env) { s.Stop(); s.Start() },
		"the connection breaks": func(t *testing.T, s *env) {
			t.Helper()
			if err := s.q.Bus().Conn().ForceReconnect(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			l := next(t, s.consumer(t, s.q, "w"))
			done := make(chan struct{})
			go func() {
				defer close(done)
				emitAll(t, l, n)
			}()
			for past := uint64(0); past < 30; past += 10 {
				testenv.Eventually(t, "some chunks are there", func() bool {
					select {
					case <-done:
						return true
					default:
					}
					m, err := s.q.Bus().LeaderLast(t.Context(), streams.Output(0), streams.AnyOutput(0, s.e.ID, id))
					return err == nil && m.Seq > past
				})
				outage(t, s)
			}
			<-done
			s.wantAll(t, id, n)
		})
	}
}

// What JetStream does not take is held up to a bound, and stored when it is back.
func TestTheWindowIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ size, most int }{
		"many":   {1, chunks.MaxWindow},
		"large":  {200 << 10, chunks.MaxWindowBytes / (200 << 10)},
		"huge":   {job.MaxChunk - 2, 2},
		"larger": {3 * job.MaxChunk, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			l := next(t, s.consumer(t, s.q, "w"))
			s.Stop()
			taken := 0
			text := json.RawMessage(`"` + strings.Repeat("x", test.size) + `"`)
			for ctx, cancel := context.WithTimeout(t.Context(), time.Second); ; taken++ {
				defer cancel()
				if err := l.Emit(ctx, text); err != nil {
					if !errors.Is(err, bus.ErrUnavailable) {
						t.Errorf("full: got %v, want bus.ErrUnavailable", err)
					}
					break
				}
			}
			if taken == 0 || taken > test.most {
				t.Errorf("got %d chunks taken, want at most %d", taken, test.most)
			}
			s.Start()
			complete(t, l)
			size := 0
			for _, c := range backend.Chunks(t, s.q, s.e, id) {
				size += len(c.Data) - len(`""`)
			}
			if size != taken*test.size {
				t.Errorf("got %d bytes of chunks, want the %d that were taken", size, taken*test.size)
			}
		})
	}
}

// A heartbeat goes on with what an outage stopped.
func TestResumeStoresWhatAnOutageLeft(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	s.Stop()
	if err := l.Emit(t.Context(), json.RawMessage(`1`)); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(t.Context()); !errors.Is(err, bus.ErrUnavailable) {
		t.Fatalf("got %v, want bus.ErrUnavailable", err)
	}
	s.Start()
	r := &reader{f: s.follow(t, s.q, id)}
	testenv.Eventually(t, "the lease is extended", func() bool { return l.Extend(t.Context()) == nil })
	r.want(t, job.InProgress, `1`)
}

func TestAChunkThatCannotBeStoredEndsTheWindow(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	at := record.LocationOf(s.e)
	other := chunks.NewWriter(s.q.Bus(), at, &l.Job, true)
	c, err := chunks.Encode(json.RawMessage(`"not of this run's worker"`))
	if err == nil {
		err = other.Emit(t.Context(), c, l.Job.Expires)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := chunks.NewWindow(chunks.NewWriter(s.q.Bus(), at, &l.Job, false))
	if err := w.Emit(t.Context(), c, l.Job.Expires); err != nil {
		t.Fatalf("got %v, want the chunk to be taken", err)
	}
	for i, call := range []func() error{
		func() error { return w.Flush(t.Context()) },
		func() error { return w.Emit(t.Context(), c, l.Job.Expires) },
	} {
		if err := call(); !errors.Is(err, bus.ErrConflict) {
			t.Errorf("call %d: got %v, want bus.ErrConflict", i, err)
		}
	}
	w.Seal()
	if err := w.Flush(t.Context()); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("sealed: got %v, want bus.ErrConflict", err)
	}
}

func TestASealedWindowTakesNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	w := chunks.NewWindow(chunks.NewWriter(s.q.Bus(), record.LocationOf(s.e), &l.Job, false))
	if w.Emitted() {
		t.Error("it has emitted nothing yet")
	}
	c, err := chunks.Encode(json.RawMessage(`1`))
	if err == nil {
		err = w.Emit(t.Context(), c, l.Job.Expires)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Seal()
	if err := w.Emit(t.Context(), c, l.Job.Expires); !errors.Is(err, chunks.ErrSealed) {
		t.Errorf("got %v, want chunks.ErrSealed", err)
	}
	if err := w.Flush(t.Context()); err != nil || !w.Emitted() {
		t.Errorf("got %v, emitted %v, want the chunk to be stored", err, w.Emitted())
	}
	if got := backend.Chunks(t, s.q, s.e, id); !slices.EqualFunc(got, []string{`1`}, func(c chunks.Chunk, want string) bool { return string(c.Data) == want }) {
		t.Errorf("got %v, want the one chunk", got)
	}
}
