package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
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
		if took := time.Since(began); took > pollEvery-time.Second {
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

// Chunks that follow each other are read together, but who has none yet is not
// kept waiting for the first.
func TestFollowWaitsOnlyWhereChunksFlow(t *testing.T) {
	s := newSite(t)
	f := s.follow(t, s.q, NewID(job.Async))
	f.rec = &record{Job: job.Job{Expires: time.Now().Add(time.Hour)}}
	f.looked = time.Now().Add(time.Hour) // the pause after that look is over in an hour
	for _, flows := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if !flows {
			ctx = t.Context()
		}
		f.flows = flows
		f.wake()
		if got := f.wait(ctx, time.Hour); got == flows {
			t.Errorf("flows %v: got %v, want to look at once only if nothing flows", flows, got)
		}
	}
}
