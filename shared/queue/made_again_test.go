package queue

import (
	"errors"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
)

// An endpoint that is made again may be another owner's.
func TestAnEndpointMadeAgainHasNoJobsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	if _, err := next(t, s.consumer(t, s.q, "w")).Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	j := s.status(t, id)
	again := s.e
	again.Created = j.Queued
	if _, err := s.q.Status(t.Context(), again, id); err != nil {
		t.Errorf("its own first job: %v", err)
	}
	testenv.Eventually(t, "a later time", func() bool { again.Created = s.q.Now(); return again.Created.Sub(j.Queued) > 2*time.Millisecond })
	for name, call := range map[string]func() (*job.Job, error){
		"status": func() (*job.Job, error) { return s.q.Status(t.Context(), again, id) },
		"stored": func() (*job.Job, error) { return s.q.StoredJob(t.Context(), again, id) },
		"retry":  func() (*job.Job, error) { return s.q.Retry(t.Context(), again, id, "") },
		"cancel": func() (*job.Job, error) { return s.q.Cancel(t.Context(), again, id) },
		"ttl":    func() (*job.Job, error) { return s.q.SetTTL(t.Context(), again, id, again.TTL) },
	} {
		if got, err := call(); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s: got %v, %v, want job.ErrNotFound", name, got, err)
		}
	}
}

// A process that was suspended between its look at the endpoint and its write submits to the
// queue of the endpoint that has the id by then.
func TestAJobOfAnEndpointBeforeDoesNotRunOnWorkersOfTheNext(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	late := s.e
	s.e.Created = s.status(t, id).Submitted.Add(time.Second)
	own := s.submit(t) // of a server whose clock is behind: as old as its endpoint
	consumer := s.consumer(t, s.q, "w")
	if l := next(t, consumer); l.Job.ID != own {
		t.Errorf("got job %s, want %s", l.Job.ID, own)
	}
	testenv.Eventually(t, "the job is removed", func() bool {
		_, err := s.q.Status(t.Context(), late, id)
		return errors.Is(err, job.ErrNotFound)
	})
}
