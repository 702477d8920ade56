package chunks_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/streams"
)

func TestCursorMovesOnAndNeverBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	j, err := s.q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	read := func() chunks.Cursor {
		t.Helper()
		c, err := chunks.ReadCursor(t.Context(), s.q.Bus(), s.e.ID, id)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := read()
	if first.Seq != 0 {
		t.Errorf("at first: got %d, want 0", first.Seq)
	}
	for _, step := range []struct {
		name     string
		from     chunks.Cursor
		to, want uint64
	}{
		{"first", first, 5, 5},
		{"slower, and not so far", first, 3, 5},
		{"slower, and further", first, 7, 7},
		{"the same again", read(), 7, 7},
	} {
		if err := chunks.MoveCursor(t.Context(), s.q.Bus(), j, step.from, step.to); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := read(); got.Seq != step.want {
			t.Errorf("%s: got %d, want %d", step.name, got.Seq, step.want)
		}
	}
	var wg sync.WaitGroup
	from := read()
	for to := range uint64(40) {
		wg.Go(func() {
			if err := chunks.MoveCursor(t.Context(), s.q.Bus(), j, from, to); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := read(); got.Seq != 39 {
		t.Errorf("forty at once: got %d, want 39", got.Seq)
	}
}

func TestCursorGoesAnHourAfterItsJob(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = time.Minute })
	j, err := s.q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := chunks.MoveCursor(t.Context(), s.q.Bus(), j, chunks.Cursor{}, 1); err != nil {
		t.Fatal(err)
	}
	m, err := s.q.Bus().LeaderLast(t.Context(), streams.Bucket(streams.BucketCursors), streams.CursorSubject(s.e.ID, id))
	if err != nil {
		t.Fatal(err)
	}
	ttl, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
	if want := time.Minute + streams.Margin; err != nil || ttl > want || ttl < want-5*time.Second {
		t.Errorf("got an age of %v, %v, want about %v", ttl, err, want)
	}
}

// The cursor of the plain reader lives as long as the job, also when the ttl is made longer
// after the chunks were read.
func TestTheCursorLivesAsLongAsAJobWhoseTTLWasMadeLonger(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 10 * time.Second })
	j, err := s.q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := chunks.MoveCursor(t.Context(), s.q.Bus(), j, chunks.Cursor{}, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := s.q.SetTTL(t.Context(), s.e, id, 7*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	m, err := s.q.Bus().LeaderLast(t.Context(), streams.Bucket(streams.BucketCursors), streams.CursorSubject(s.e.ID, id))
	if err != nil {
		t.Fatal(err)
	}
	ttl, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
	if err != nil {
		t.Fatal(err)
	}
	if ttl < 7*24*time.Hour {
		t.Errorf("the cursor is forgotten after %v, the job lives 168h", ttl)
	}
}
