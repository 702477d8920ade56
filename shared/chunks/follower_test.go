package chunks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/shared/testenv/backend"
	"flightline/streams"
)

// reader reads a job's stream as callers do.
type reader struct {
	f     *chunks.Follower
	after uint64
	most  int // 0 means 100
}

func (r *reader) next(ctx context.Context) (chunks []string, j *job.Job, more bool, err error) {
	most := r.most
	if most == 0 {
		most = 100
	}
	got, j, more, err := r.f.Next(ctx, r.after, most)
	before := r.after
	for _, c := range got {
		r.after = c.Seq
		chunks = append(chunks, string(c.Data))
	}
	if len(got) > 0 && r.after <= before { // the last of what was read has the sequence of its message
		return nil, nil, false, fmt.Errorf("sequence %d after %d", r.after, before)
	}
	return chunks, j, more, err
}

// all reads until the end.
func (r *reader) all(ctx context.Context) (chunks []string, j *job.Job, err error) {
	for {
		got, j, more, err := r.next(ctx)
		chunks = append(chunks, got...)
		if err != nil || j.Status.Terminal() && !more {
			return chunks, j, err
		}
		if ctx.Err() != nil {
			return chunks, j, ctx.Err()
		}
	}
}

func (r *reader) want(t *testing.T, status job.Status, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	got, j, _, err := r.next(ctx)
	if err != nil || !slices.Equal(got, want) || j.Status != status {
		t.Fatalf("got %.200q, %v, %v, want %.200q and %s", got, j, err, want, status)
	}
}

func TestFollowTellsChunksAsTheyComeAndThenTheEnd(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	r := &reader{f: s.follow(t, s.queue(t), id)}
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got, j, _, err := r.next(brief); err != nil || len(got) > 0 || j.Status != job.InQueue {
		t.Fatalf("waiting: got %q, %v, %v, want IN_QUEUE", got, j, err)
	}
	l := next(t, s.consumer(t, s.q, "w"))
	for i := range 5 {
		began := time.Now()
		chunk := fmt.Sprintf(`{"output":%d}`, i)
		emit(t, l, chunk)
		r.want(t, job.InProgress, chunk)
		if took := time.Since(began); took > chunks.PollInterval-time.Second {
			t.Errorf("it was told after %v, want no poll to be needed", took)
		}
	}
	emit(t, l, `{"output":"a"}`, `{"output":"b"}`)
	if _, err := l.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.want(t, job.Completed, `{"output":"a"}`, `{"output":"b"}`)
	r.want(t, job.Completed)
	again := &reader{f: s.follow(t, s.q, id), most: 3}
	if got, j, err := again.all(t.Context()); err != nil || len(got) != 7 || j.Status != job.Completed {
		t.Errorf("from the beginning: got %q, %v, %v, want 7 chunks", got, j, err)
	}
}

func TestFollowHoldsTheEndBackWhileChunksRemain(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	large := `{"output":"` + strings.Repeat("x", job.MaxChunk-20) + `"}`
	want := []string{`{"output":1}`, large, large, large, `{"output":2}`}
	emit(t, l, want...)
	if _, err := l.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	for _, most := range []int{1, 2, 3, 100} {
		r := &reader{f: s.follow(t, s.q, id), most: most}
		var got []string
		for {
			chunks, j, more, err := r.next(t.Context())
			got = append(got, chunks...)
			if err != nil || more != (len(got) < len(want)) || j.Status != job.Failed || j.Error != "no" {
				t.Fatalf("most %d: after %d chunks: more %v, %v, %v", most, len(got), more, j, err)
			}
			if !more {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("most %d: got %d chunks, want %d, or others", most, len(got), len(want))
		}
	}
}

func TestFollowReadsNoHalfChunk(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	emit(t, l, `{"output":"`+strings.Repeat("x", record.PartSize)+`"}`, `{"output":1}`)
	f := s.follow(t, s.q, id)
	list, _, _, err := f.Read(t.Context(), 1, 10) // 1 is the first part of the large one
	if err != nil || len(list) != 1 || string(list[0].Data) != `{"output":1}` {
		t.Errorf("from its middle: got %.100v, %v, want the next one", list, err)
	}
	// A worker that died between the parts: the end must be seen all the same.
	w := chunks.NewWriter(s.q.Bus(), record.LocationOf(s.e), &l.Job, true)
	if err := w.EmitFirstPart(t.Context(), []byte(`"`+strings.Repeat("y", record.PartSize)+`"`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if got, j, err := (&reader{f: f}).all(t.Context()); err != nil || len(got) != 2 || j.Status != job.Cancelled {
		t.Errorf("got %d chunks, %v, %v, want 2 and CANCELLED", len(got), j, err)
	}
}

func TestFollowOfWhatIsNotThereOrGoes(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	if _, _, _, err := s.follow(t, s.q, "nobody").Next(t.Context(), 0, 10); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("unknown: got %v, want job.ErrNotFound", err)
	}
	if _, err := chunks.Follow(s.q, s.e, "no.id"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("no id: got %v, want job.ErrNotFound", err)
	}
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = time.Second })
	l := next(t, s.consumer(t, s.q, "w"))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, _, _, err := s.follow(t, s.q, id).Next(ctx, 0, 10); !errors.Is(err, job.ErrNotFound) || s.q.Until(l.Job.Expires) > 0 {
		t.Errorf("expired: got %v, want job.ErrNotFound", err)
	}
}

// Chunks that follow each other are read together, but who has none yet is not
// kept waiting for the first.
func TestFollowWaitsOnlyWhereChunksFlow(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	f := s.follow(t, s.q, queue.NewID(job.Async))
	for _, flows := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if !flows {
			ctx = t.Context()
		}
		if got := f.WaitsAfterRead(ctx, flows); got == flows {
			t.Errorf("flows %v: got %v, want to look at once only if nothing flows", flows, got)
		}
	}
}

func TestFollowGoesOnWithTheRunThatTookOver(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	lost := s.queue(t)
	id := s.submit(t)
	first := next(t, s.consumer(t, lost, "first"))
	r := &reader{f: s.follow(t, s.q, id)}
	emit(t, first, `1`, `2`)
	r.want(t, job.InProgress, `1`, `2`)
	testenv.Eventually(t, "the second has been served for a lease", func() bool { return s.q.Bus().Availability().Age() > s.e.Lease })
	second := next(t, s.consumer(t, s.q, "second"))
	emit(t, second, `"a"`)
	emit(t, first, `3`) // it has not noticed yet
	emit(t, second, `"b"`)
	r.want(t, job.InProgress, `"a"`, `"b"`)
	emit(t, first, `4`)
	emit(t, second, `"c"`)
	r.want(t, job.InProgress, `"c"`)
	if _, err := second.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	r.want(t, job.Failed)
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got, j, _, err := r.next(brief); err != nil || len(got) > 0 || j.Status != job.InQueue {
		t.Errorf("retried: got %q, %v, %v, want IN_QUEUE", got, j, err)
	}
	third := next(t, s.consumer(t, s.q, "third"))
	emit(t, third, `"again"`)
	r.want(t, job.InProgress, `"again"`)
}

// The run that a chunk belongs to may be another by the time it is read.
func TestFollowDropsChunksOfARunThatIsOver(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	lost := s.queue(t)
	id := s.submit(t)
	first := next(t, s.consumer(t, lost, "first"))
	f := s.follow(t, s.q, id)
	if _, _, _, err := f.Read(t.Context(), 0, 10); err != nil { // it knows of the first run only
		t.Fatal(err)
	}
	testenv.Eventually(t, "the second has been served for a lease", func() bool { return s.q.Bus().Availability().Age() > s.e.Lease })
	second := next(t, s.consumer(t, s.q, "second"))
	emit(t, second, `"a"`)
	emit(t, first, `"stale"`) // would put the cursor behind "a"
	list, _, _, err := f.Read(t.Context(), 0, 10)
	if err != nil || len(list) != 1 || string(list[0].Data) != `"a"` || list[0].Run != 2 {
		t.Errorf("got %v, %v, want the chunk of the second run", list, err)
	}
}

func TestFollowSitsOutAnOutage(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	emit(t, l, `1`)
	r := &reader{f: s.follow(t, s.queue(t), id)}
	r.want(t, job.InProgress, `1`)
	s.Stop()
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, j, _, err := r.next(brief); err != nil || len(got) > 0 || j.Status != job.InProgress {
		t.Errorf("meanwhile: got %q, %v, %v, want IN_PROGRESS", got, j, err)
	}
	if _, _, _, err := s.follow(t, s.q, id).Next(t.Context(), 0, 10); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("begun meanwhile: got %v, want bus.ErrUnavailable", err)
	}
	s.Start()
	testenv.Eventually(t, "a chunk is taken again", func() bool { return l.Emit(t.Context(), json.RawMessage(`2`)) == nil })
	r.want(t, job.InProgress, `2`)
}

// While its job cannot be read, a follower looks now and then, also once the job's ttl is over:
// hundreds of them would keep each other and JetStream busy.
func TestFollowDoesNotAskWithoutAPause(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	emit(t, next(t, s.consumer(t, s.q, "w")), `1`)
	r := &reader{f: s.follow(t, s.queue(t), id)}
	r.want(t, job.InProgress, `1`)
	records := streams.Records(s.e.Partition)
	if err := s.JS.DeleteStream(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	r.f.Expire()
	reads := testenv.Subscribe(t, s.NC, bus.LeaderGet(records))
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 4*chunks.RetryDelay)
	defer cancel()
	if got, j, _, err := r.next(ctx); err != nil || len(got) > 0 || j.Status != job.InProgress {
		t.Errorf("got %q, %v, %v, want it to sit that out", got, j, err)
	}
	most := 2 + int(time.Since(began)/chunks.RetryDelay)
	if err := s.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := reads.Pending(); err != nil || n < 1 || n > most {
		t.Errorf("got %d reads, %v, want 1 to %d", n, err, most)
	}
}

// What was heard of and a replica lacks is read from the leader.
func TestFollowReadsFromTheLeaderWhatAReplicaLacks(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	large := `{"output":"` + strings.Repeat("x", record.PartSize) + `"}`
	emit(t, l, `1`, large, `2`)
	f := s.follow(t, s.q, id)
	if _, _, _, err := f.Read(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{`1`}, {large}, {`2`}, {}} {
		after := []uint64{0, 1, 3, 4}[i]
		list, err := f.ReadLeader(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, c := range list {
			got = append(got, string(c.Data))
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d: got %.40q, want %.40q", after, got, want)
		}
	}
	if upTo, n, err := f.ReadAfterHearingOf(t.Context(), 4, 9); err != nil || upTo != 9 || n > 0 {
		t.Errorf("heard of and gone: got %d chunks up to %d, %v, want to be past it", n, upTo, err)
	}
}

// The last chunk and the end come at nearly the same time.
func TestFollowersSeeEveryChunkBeforeTheEnd(t *testing.T) {
	t.Parallel()
	const jobs, readers, each = 20, 3, 30
	s := newEnv(t)
	consumer := s.consumer(t, s.q, "w")
	var g errgroup.Group
	for range jobs {
		id := s.submit(t)
		l := next(t, consumer)
		var began sync.WaitGroup
		for range readers {
			f := s.follow(t, s.q, id)
			began.Add(1)
			g.Go(func() error {
				began.Done()
				got, j, err := (&reader{f: f}).all(t.Context())
				if err != nil || j.Status != job.Completed || len(got) != each || got[0] != "0" || got[each-1] != fmt.Sprint(each-1) {
					return fmt.Errorf("got %d chunks, %v, %w: %v", len(got), j, err, got)
				}
				return nil
			})
		}
		began.Wait()
		for i := range each {
			emit(t, l, fmt.Sprint(i))
		}
		if _, err := l.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestFollowInAClusterSeesEveryChunk(t *testing.T) {
	t.Parallel()
	const jobs, each = 15, 20
	c := testenv.NewCluster(t)
	if err := streams.Apply(t.Context(), c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	e, err := endpoint.Endpoint{ID: "ep"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(t.Context(), c.NC, queue.Config{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Background(t, q.Run)
	if err := q.CreateEndpoint(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	consumer, err := q.Consume(t.Context(), e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consumer.Close)
	var g errgroup.Group
	for range jobs {
		id := backend.Submit(t, q, e)
		l := next(t, consumer)
		f := follow(t, q, e, id)
		g.Go(func() error {
			got, j, err := (&reader{f: f}).all(t.Context())
			if err != nil || j.Status != job.Completed || len(got) != each {
				return fmt.Errorf("got %d chunks of %d, %v, %w", len(got), each, j, err)
			}
			return nil
		})
		for i := range each {
			emit(t, l, fmt.Sprint(i))
		}
		if _, err := l.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
