package chunks_test

import (
	"testing"
	"time"

	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/streams"
)

// The cursor of the plain reader lives as long as the job, also when the ttl is made longer
// after the chunks were read.
func TestTheCursorLivesAsLongAsAJobWhoseTTLWasMadeLonger(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	q := s.queue(t)
	id := s.submit(t, func(r *job.Request) { r.Policy.TTL = 10 * time.Second })
	j, err := q.Status(t.Context(), s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := chunks.MoveCursor(t.Context(), q.Bus(), j, chunks.Cursor{}, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := q.SetTTL(t.Context(), s.e, id, 7*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	m, err := q.Bus().LeaderLast(t.Context(), streams.Bucket(streams.BucketCursors), streams.CursorSubject(s.e.ID, id))
	if err != nil {
		t.Fatal(err)
	}
	ttl, err := time.ParseDuration(m.Header.Get("Nats-TTL"))
	if err != nil {
		t.Fatal(err)
	}
	if ttl < 7*24*time.Hour {
		t.Errorf("the cursor is forgotten after %v, the job lives 168h", ttl)
	}
}
