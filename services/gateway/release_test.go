package gateway

import (
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestJobsOfAWorkerThatItsDriverEndedWaitAgainAtOnce(t *testing.T) {
	s := newEnv(t)
	one, two := s.gateway(Config{}), s.gateway(Config{})
	now := s.queue.Now().UTC()
	must(t, s.registry.Pods.Create(t.Context(), pod.Pod{ID: "w1", Endpoint: "ep", Driver: pod.Process, Status: pod.Running, Created: now, Changed: now}))
	id := s.submit()
	w := s.worker("w1", one, two)
	w.take()
	w.ping(id)
	_, err := s.registry.Pods.Move(t.Context(), "w1", pod.Remove, "stopped", now, func(p *pod.Pod) error {
		p.Cut = []string{id, "not-a-job"}
		return nil
	})
	must(t, err)
	testenv.Within(t, 20*time.Second, "the job waits again", func() bool {
		j := s.status(id)
		return j.Status == job.InQueue && j.Lost == 0
	})
	// And another worker gets it, long before the lease would be over.
	if got := s.worker("w2", one, two).take(); got.ID != id {
		t.Errorf("got %+v, want job %s", got, id)
	}
}

// Neither a job whose record cannot be read, nor the pod that had it, keeps
// others from being given back.
func TestOneJobThatCannotBeGivenBackKeepsNoOtherFromIt(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	a, b := s.worker("w1", g), s.worker("w2", g)
	s.submit()
	s.submit()
	one, two := a.take().ID, b.take().ID
	broken := job.ID("broken")
	_, err := s.bus.JS.Publish(t.Context(), streams.RecordSubject(0, "ep", broken, 1), []byte("garbage"))
	must(t, err)
	now := s.queue.Now().UTC()
	for id, cut := range map[string][]string{"w1": {string(broken), one}, "w2": {two}} {
		must(t, s.registry.Pods.Create(t.Context(), pod.Pod{
			ID: id, Endpoint: "ep", Driver: pod.Process, Status: pod.Terminated, Created: now, Changed: now, Cut: cut,
		}))
	}
	for _, id := range []string{one, two} {
		testenv.Within(t, 20*time.Second, "the job waits again", func() bool { return s.status(id).Status == job.InQueue })
	}
}
