package queue

import (
	"encoding/json"
	"testing"

	"flightline/shared/job"
)

func TestSubmitAgainQueuesAJobOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id, r := NewID(job.Async), job.Request{Input: json.RawMessage(`{}`)}
	for i := range 3 {
		j, queued, err := s.q.SubmitIdempotent(t.Context(), s.e, id, job.Async, r)
		if err != nil || j.ID != id || j.Status != job.InQueue || queued != (i > 0) {
			t.Fatalf("submission %d: got %+v, %t, %v", i, j, queued, err)
		}
	}
	if got := s.pages(t, s.q.Lists.Live, ListOptions{Most: 5}); len(got) != 1 {
		t.Errorf("got %d jobs, want one", len(got))
	}
}
