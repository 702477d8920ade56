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
	if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
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
