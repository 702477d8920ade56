package queue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"flightline/shared/job"
)

// The input of a job can be read as long as a run or a retry may need it.
func TestInputIsThereWhileItMayBeNeeded(t *testing.T) {
	s := newEnv(t)
	for name, input := range map[string]string{"inline": `{"n":7}`, "beside": `{"x":"` + strings.Repeat("z", 1<<20) + `"}`} {
		t.Run(name, func(t *testing.T) {
			id := s.submit(t, func(r *job.Request) { r.Input = json.RawMessage(input) })
			expect := func(status job.Status, want string) {
				t.Helper()
				got, j, err := s.q.ReadInput(t.Context(), s.e, id)
				if err != nil || j.Status != status || string(got) != want {
					t.Errorf("got %d bytes, %+v, %v, want %d of a job that is %s", len(got), j, err, len(want), status)
				}
			}
			expect(job.InQueue, input)
			consumer := s.consumer(t, s.q, "w")
			defer consumer.Close()
			l := next(t, consumer)
			expect(job.InProgress, input)
			if _, err := l.Fail(t.Context(), "boom"); err != nil {
				t.Fatal(err)
			}
			s.want(t, id, job.Failed)
			expect(job.Failed, input)
			if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
				t.Fatal(err)
			}
			if _, err := next(t, consumer).Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			s.want(t, id, job.Completed)
			expect(job.Completed, "")
		})
	}
	if _, _, err := s.q.ReadInput(t.Context(), s.e, NewID(job.Async)); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want job.ErrNotFound", err)
	}
}
