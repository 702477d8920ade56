package queue

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

	"flightline/shared/job"
	"flightline/streams"
)

func (s *site) follow(t *testing.T, q *Queue, id job.ID) *Follow {
	t.Helper()
	f, err := q.Follow(s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func emit(t *testing.T, l *Lease, chunks ...string) {
	t.Helper()
	for _, c := range chunks {
		if err := l.Emit(t.Context(), json.RawMessage(c)); err != nil {
			t.Fatal(err)
		}
	}
}

// reader reads a job's stream as callers do.
type reader struct {
	f     *Follow
	after uint64
	most  int // 0 means 100
}

func (r *reader) next(ctx context.Context) (chunks []string, j *job.Job, more bool, err error) {
	most := r.most
	if most == 0 {
		most = 100
	}
	got, j, more, err := r.f.Next(ctx, r.after, most)
	for _, c := range got {
		if c.Seq <= r.after {
			return nil, nil, false, fmt.Errorf("sequence %d after %d", c.Seq, r.after)
		}
		r.after = c.Seq
		chunks = append(chunks, string(c.Data))
	}
	return chunks, j, more, err
}

// all reads until the end is told.
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
	s := newSite(t)
	id := s.submit(t)
	r := &reader{f: s.follow(t, s.queue(t, Config{}), id)}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, j, _, err := r.next(brief); err != nil || len(got) > 0 || j.Status != job.InQueue {
		t.Fatalf("waiting: got %q, %v, %v, want IN_QUEUE", got, j, err)
	}
	l := next(t, s.taker(t, s.q, "w"))
	for i := range 5 {
		began := time.Now()
		chunk := fmt.Sprintf(`{"output":%d}`, i)
		emit(t, l, chunk)
		r.want(t, job.InProgress, chunk)
		if took := time.Since(began); took > time.Second {
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
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
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
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	emit(t, l, `{"output":"`+strings.Repeat("x", partSize)+`"}`, `{"output":1}`)
	f := s.follow(t, s.q, id)
	chunks, _, _, err := f.Look(t.Context(), 1, 10) // 1 is the first part of the large one
	if err != nil || len(chunks) != 1 || string(chunks[0].Data) != `{"output":1}` {
		t.Errorf("from its middle: got %.100v, %v, want the next one", chunks, err)
	}
	// A worker that died between the parts: the end must be told all the same.
	m := l.parts([]byte(`"` + strings.Repeat("y", partSize) + `"`))[0]
	if _, err := s.q.publish(t.Context(), streams.Output(0), m, "half", l.chunk); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	if got, j, err := (&reader{f: f}).all(t.Context()); err != nil || len(got) != 2 || j.Status != job.Cancelled {
		t.Errorf("got %d chunks, %v, %v, want 2 and CANCELLED", len(got), j, err)
	}
}

func TestFollowGoesOnWithTheRunThatTookOver(t *testing.T) {
	s := newSite(t)
	lost := s.queue(t, Config{})
	id := s.submit(t)
	first := next(t, s.taker(t, lost, "first"))
	r := &reader{f: s.follow(t, s.q, id)}
	emit(t, first, `1`, `2`)
	r.want(t, job.InProgress, `1`, `2`)
	eventually(t, "the second has been served for a lease", func() bool { return s.q.service.age() > s.e.Lease })
	second := next(t, s.taker(t, s.q, "second"))
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
	if _, err := s.q.Retry(t.Context(), s.e, id); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, j, _, err := r.next(brief); err != nil || len(got) > 0 || j.Status != job.InQueue {
		t.Errorf("retried: got %q, %v, %v, want IN_QUEUE", got, j, err)
	}
	third := next(t, s.taker(t, s.q, "third"))
	emit(t, third, `"anew"`)
	r.want(t, job.InProgress, `"anew"`)
}

// The run that a chunk belongs to may be another by the time it is read.
func TestFollowDropsChunksOfARunThatIsOver(t *testing.T) {
	s := newSite(t)
	lost := s.queue(t, Config{})
	id := s.submit(t)
	first := next(t, s.taker(t, lost, "first"))
	f := s.follow(t, s.q, id)
	if _, _, _, err := f.Look(t.Context(), 0, 10); err != nil { // it knows of the first run only
		t.Fatal(err)
	}
	eventually(t, "the second has been served for a lease", func() bool { return s.q.service.age() > s.e.Lease })
	second := next(t, s.taker(t, s.q, "second"))
	emit(t, second, `"a"`)
	emit(t, first, `"stale"`) // would put the cursor behind "a"
	chunks, _, _, err := f.Look(t.Context(), 0, 10)
	if err != nil || len(chunks) != 1 || string(chunks[0].Data) != `"a"` || chunks[0].Run != 2 {
		t.Errorf("got %v, %v, want the chunk of the second run", chunks, err)
	}
}

func TestFollowOfWhatIsNotThereOrGoes(t *testing.T) {
	s := newSite(t)
	if _, _, _, err := s.follow(t, s.q, "nobody").Next(t.Context(), 0, 10); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("unknown: got %v, want job.ErrNotFound", err)
	}
	if _, err := s.q.Follow(s.e, "no.id"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("no id: got %v, want job.ErrNotFound", err)
	}
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = time.Second })
	l := next(t, s.taker(t, s.q, "w"))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, _, _, err := s.follow(t, s.q, id).Next(ctx, 0, 10); !errors.Is(err, job.ErrNotFound) || s.q.Until(l.Job.Expires) > 0 {
		t.Errorf("expired: got %v, want job.ErrNotFound", err)
	}
}

func TestFollowSitsOutAnOutage(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	emit(t, l, `1`)
	r := &reader{f: s.follow(t, s.queue(t, Config{}), id)}
	r.want(t, job.InProgress, `1`)
	s.Stop()
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, j, _, err := r.next(brief); err != nil || len(got) > 0 || j.Status != job.InProgress {
		t.Errorf("meanwhile: got %q, %v, %v, want IN_PROGRESS", got, j, err)
	}
	if _, _, _, err := s.follow(t, s.q, id).Next(t.Context(), 0, 10); !errors.Is(err, ErrUnavailable) {
		t.Errorf("begun meanwhile: got %v, want ErrUnavailable", err)
	}
	s.Start()
	eventually(t, "a chunk is taken again", func() bool { return l.Emit(t.Context(), json.RawMessage(`2`)) == nil })
	r.want(t, job.InProgress, `2`)
}

// What was heard of and a replica lacks is read from the leader.
func TestFollowReadsFromTheLeaderWhatAReplicaLacks(t *testing.T) {
	s := newSite(t)
	id := s.submit(t)
	l := next(t, s.taker(t, s.q, "w"))
	large := `{"output":"` + strings.Repeat("x", partSize) + `"}`
	emit(t, l, `1`, large, `2`)
	f := s.follow(t, s.q, id)
	for i, want := range [][]string{{`1`}, {large}, {`2`}, {}} {
		after := []uint64{0, 1, 3, 4}[i]
		msgs, err := f.readLeader(t.Context(), streams.Output(0), l.outputSubject(), after)
		if err != nil {
			t.Fatal(err)
		}
		b, err := batchOf(msgs, after, l.rec)
		got := []string{}
		for _, c := range b.chunks {
			got = append(got, string(c.Data))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("after %d: got %.40q, %v, want %.40q", after, got, err, want)
		}
	}
	if _, _, _, err := f.Look(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	f.heard.subject, f.heard.seq = l.outputSubject(), 9
	if b, err := f.read(t.Context(), 4, 10); err != nil || b.upTo != 9 || len(b.chunks) > 0 {
		t.Errorf("heard of and gone: got %+v, %v, want to be past it", b, err)
	}
}

// The last chunk and the end come at nearly the same time.
func TestFollowersSeeEveryChunkBeforeTheEnd(t *testing.T) {
	const jobs, readers, chunks = 20, 3, 30
	s := newSite(t)
	taker := s.taker(t, s.q, "w")
	var g errgroup.Group
	for range jobs {
		id := s.submit(t)
		l := next(t, taker)
		var began sync.WaitGroup
		for range readers {
			f := s.follow(t, s.q, id)
			began.Add(1)
			g.Go(func() error {
				began.Done()
				got, j, err := (&reader{f: f}).all(t.Context())
				if err != nil || j.Status != job.Completed || len(got) != chunks || got[0] != "0" || got[chunks-1] != fmt.Sprint(chunks-1) {
					return fmt.Errorf("got %d chunks, %v, %w: %v", len(got), j, err, got)
				}
				return nil
			})
		}
		began.Wait()
		for i := range chunks {
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
	const jobs, chunks = 15, 20
	c := newTrio(t)
	var g errgroup.Group
	for range jobs {
		id := c.submit(t)
		l := next(t, c.taker)
		f, err := c.q.Follow(c.e, id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		g.Go(func() error {
			got, j, err := (&reader{f: f}).all(t.Context())
			if err != nil || j.Status != job.Completed || len(got) != chunks {
				return fmt.Errorf("got %d chunks of %d, %v, %w", len(got), chunks, j, err)
			}
			return nil
		})
		for i := range chunks {
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
