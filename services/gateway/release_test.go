package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flightline/shared/endpoint"
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

// A worker that crashes early in a job has named it in no ping. No lease, and no time to be
// confirmed, is waited for.
func TestJobsOfAWorkerThatCrashedWaitAgainAtOnceAndItCountsAsLost(t *testing.T) {
	s := newEnv(t, func(e *endpoint.Endpoint) { e.Lease = time.Hour })
	g, other := s.gateway(Config{Confirm: time.Hour}), s.gateway(Config{Confirm: time.Hour})
	now := s.queue.Now().UTC()
	must(t, s.registry.Pods.Create(t.Context(), pod.Pod{ID: "w1", Endpoint: "ep", Driver: pod.Process, Status: pod.Running, Created: now, Changed: now}))
	named, taken := s.submit(), s.submit()
	w := s.worker("w1", g)
	w.take()
	w.ping(named)
	w.take()
	g.stop()
	_, err := s.registry.Pods.Move(t.Context(), "w1", pod.Exit, "it ended by itself", now, func(p *pod.Pod) error {
		p.Cut, p.Gone = []string{named}, now
		return nil
	})
	must(t, err)
	for id, lost := range map[string]int{named: 1, taken: 0} { // perhaps it was not sent the other one whole
		testenv.EventuallyNone(t, func() string {
			if j := s.status(id); j.Status != job.InQueue || j.Lost != lost {
				return fmt.Sprintf("got %s, lost %d, want it to wait, lost %d", j.Status, j.Lost, lost)
			}
			return ""
		})
	}
	next := s.worker("w2", other)
	if got := []string{next.take().ID, next.take().ID}; !slices.Contains(got, named) || !slices.Contains(got, taken) {
		t.Errorf("got %v, want %s and %s", got, named, taken)
	}
}

// Nobody may look while a pod is started again, as in an outage of the bus.
func TestAPodThatEndedAgainBetweenTwoLooksGivesBackTheJobsOfItsLastStart(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	now := s.queue.Now().UTC()
	must(t, s.registry.Pods.Create(t.Context(), pod.Pod{ID: "w1", Endpoint: "ep", Driver: pod.Process, Status: pod.Running, Created: now, Changed: now}))
	id := s.submit()
	w := s.worker("w1", g)
	w.ping()
	w.take()
	g.stop()
	move := func(by pod.Trigger, cut ...string) {
		_, err := s.registry.Pods.Move(t.Context(), "w1", by, "x", now, func(p *pod.Pod) error {
			p.Cut = cut
			return nil
		})
		must(t, err)
	}
	done := map[podEnd]bool{}
	move(pod.Exit, "a-job-before")
	must(t, g.service.releaseJobsOfPods(t.Context(), done))
	move(pod.Start)
	move(pod.Exit, id)
	must(t, g.service.releaseJobsOfPods(t.Context(), done))
	if j := s.status(id); j.Status != job.InQueue || j.Lost != 0 {
		t.Errorf("got %s, lost %d, want it to wait", j.Status, j.Lost)
	}
}

// Its autoscaler may be away, and it may go on.
func TestAWorkerThatNobodySawEndKeepsItsJobs(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{})
	now := s.queue.Now().UTC()
	for _, id := range []string{"away", "crashed"} {
		must(t, s.registry.Pods.Create(t.Context(), pod.Pod{ID: id, Endpoint: "ep", Driver: pod.Process, Status: pod.Running, Created: now, Changed: now}))
	}
	kept := s.submit()
	away := s.worker("away", g)
	away.ping()
	away.take()
	id := s.submit()
	crashed := s.worker("crashed", g)
	crashed.ping()
	crashed.take()
	for _, p := range []string{"away", "crashed"} { // in this order
		_, err := s.registry.Pods.Move(t.Context(), p, pod.Exit, "gone", now, func(x *pod.Pod) error {
			if p == "crashed" {
				x.Gone = now
			}
			return nil
		})
		must(t, err)
	}
	testenv.Eventually(t, "the job of the other one waits again", func() bool { return s.status(id).Status == job.InQueue })
	if j := s.status(kept); j.Status != job.InProgress || j.Worker != "away" {
		t.Errorf("got %s by %s, want that it runs on", j.Status, j.Worker)
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
