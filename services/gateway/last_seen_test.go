package gateway

import (
	"fmt"
	"testing"
	"time"

	"flightline/shared/registry"
	"flightline/shared/testenv"
)

func TestWhatIsRememberedOfWorkersIsBounded(t *testing.T) {
	const keep = 10 * time.Second
	r, now := newLastSeen(keep), time.Now()
	known := func(key string, at time.Time) bool {
		_, known := r.last(key, at)
		return known
	}
	for i := range maxLastSeen + 10 {
		r.add(fmt.Sprint("ep.", i), now)
	}
	if len(r.at) != maxLastSeen || known("ep."+fmt.Sprint(maxLastSeen), now) || !known("ep.0", now) {
		t.Errorf("got %d, want the first %d", len(r.at), maxLastSeen)
	}
	r.add("ep.0", now.Add(1))
	if at, _ := r.last("ep.0", now.Add(1)); !at.Equal(now.Add(1)) {
		t.Errorf("got %v, want the last time of one that was known", at)
	}
	later := now.Add(keep + 1)
	r.add("ep.x", later)
	if len(r.at) != 1 || known("ep.0", later) || !known("ep.x", later.Add(keep-1)) {
		t.Errorf("got %d, want those of long ago forgotten", len(r.at))
	}
}

// A job that came and went between two pings is in the next heartbeat.
func TestAPingTellsHowLongTheWorkerHasHadNoJob(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	var last time.Time
	beat := func() (got registry.Worker) {
		t.Helper()
		w.ping()
		testenv.Eventually(t, "the heartbeat is heard", func() bool {
			all, err := s.registry.Workers.List(t.Context(), "ep")
			if err != nil || len(all) != 1 || !all[0].Seen.After(last) {
				return false
			}
			got, last = all[0], all[0].Seen
			return true
		})
		return got
	}
	if got := beat().Rested; got != 0 {
		t.Errorf("without a job: got %s, want that nothing is known", got)
	}
	began := time.Now()
	id := s.submit()
	w.take()
	if got := beat(); got.Rested <= 0 || got.Rested > time.Since(began) {
		t.Errorf("took one that it does not name yet: got %s, want up to %s", got.Rested, time.Since(began))
	}
	w.done(id, `{"output":1}`)
	ended := time.Now()
	testenv.Eventually(t, "time passes", func() bool { return time.Since(ended) > 10*time.Millisecond })
	if got := beat().Rested; got < 10*time.Millisecond || got > time.Since(began) {
		t.Errorf("ended one: got %s, want 10ms to %s", got, time.Since(began))
	}
}
