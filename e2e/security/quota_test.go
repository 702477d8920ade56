package security

import (
	"net/http"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// A key that has as many jobs waiting as its quota allows is refused everywhere,
// with the name of the bound. Others are served meanwhile. A changed quota holds
// without a restart, and jobs that end make room.
func TestAKeyFillsItsQuotaAndNobodyElses(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	base := s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "idle")
	s.OK("endpoint", "create", "served")
	s.Start("worker", "served", "--", "cat").Line(program.WorkerReady)
	var greedy, other struct{ ID, Key string }
	create := func(name, quota string) string {
		return s.OK("key", "create", name, "--scope", "submit:*", "--scope", "read:*", "--quota", quota, "-o", "json")
	}
	program.Decode(t, create("greedy", "waitingJobs=5,waitingBytes=100000"), &greedy)
	program.Decode(t, create("other", "waitingJobs=1000"), &other)
	submit := func(key, to string, size int) (int, string) {
		status, text, err := call(t, program.Soon, http.MethodPost, base+"/v2/"+to, key, input(size))
		if err != nil {
			t.Fatal(err)
		}
		return status, text
	}
	refused := func(what, to string, size int, want string) {
		t.Helper()
		s.Eventually(what, func() bool { // once what ended no longer counts
			status, text := submit(greedy.Key, to, size)
			if status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Fatalf("%s: got %d %s, want 429", what, status, text)
			}
			return status == http.StatusTooManyRequests && strings.Contains(text, want)
		})
	}
	refused("large inputs are refused", "served/run", 200_000, "quota waitingBytes is 100000") // not in the first second of a process
	refused("the sixth job is refused", "idle/run", 1, "quota waitingJobs is 5")
	refused("and at another endpoint", "served/runsync", 1, "quota waitingJobs is 5")
	if status, text := submit(other.Key, "idle/run", 1); status != http.StatusOK {
		t.Errorf("another key: got %d %s", status, text)
	}
	if status, text := submit(other.Key, "served/runsync", 1); status != http.StatusOK || !strings.Contains(text, "COMPLETED") {
		t.Errorf("another key: got %d %s, want its job completed", status, text)
	}

	accepted := func(what string) {
		t.Helper()
		s.Eventually(what, func() bool { status, _ := submit(greedy.Key, "idle/run", 1); return status == http.StatusOK })
	}
	s.OK("key", "quota", greedy.ID, "waitingJobs=9")
	if list := s.OK("key", "list"); !strings.Contains(list, "waitingBytes=100000,waitingJobs=9") {
		t.Errorf("got %s, want the quota in the list", list)
	}
	accepted("a larger quota holds without a restart")
	refused("the larger quota is a bound too", "idle/run", 1, "quota waitingJobs is 9")
	s.Start("worker", "idle", "--", "cat").Line(program.WorkerReady)
	accepted("jobs that ended made room")
}

// An endpoint with as many jobs as it may have refuses one more, whosever it is.
func TestAnEndpointIsFullOfJobs(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	base := s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "few", "--max-queue-jobs", "3")
	var key struct{ Key string }
	program.Decode(t, s.OK("key", "create", "ci", "--scope", "submit:few", "-o", "json"), &key)
	s.Eventually("the queue is full", func() bool {
		status, text, err := call(t, program.Soon, http.MethodPost, base+"/v2/few/run", key.Key, input(1))
		if err != nil {
			t.Fatal(err)
		}
		return status == http.StatusTooManyRequests && strings.Contains(text, "and maxQueueJobs is 3")
	})
	s.OK("endpoint", "update", "few", "--max-queue-jobs", "1000")
	s.Eventually("a larger bound holds without a restart", func() bool {
		status, _, err := call(t, program.Soon, http.MethodPost, base+"/v2/few/run", key.Key, input(1))
		return err == nil && status == http.StatusOK
	})
}
