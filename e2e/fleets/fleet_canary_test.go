package fleets

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
)

// TestACanaryEndsAlsoIfItsLeaderIsKilled tries a good and a bad version on one of three
// workers, and kills the leading autoscaler once the canary works, with the workers of its
// machine. The other one promotes the version or rolls it back, and at no look are there
// more workers than workersMax.
func TestACanaryEndsAlsoIfItsLeaderIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("finds workers in /proc")
	}
	for name, tc := range map[string]struct {
		change map[string]string
		state  string
		then   func(before, tried int) int // the version of all workers
	}{
		"good": {map[string]string{"FLEET_TEST_VERSION": "2"}, endpoint.CanaryPromoted, func(_, tried int) int { return tried }},
		"bad":  {map[string]string{"FLEET_TEST_FAILS": "no such layer"}, endpoint.CanaryRolledBack, func(before, _ int) int { return before }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const workers = 3
			f, id := newFleetServer(t), "canary-"+name
			leading, standing := f.twoScalers()
			env := map[string]string{asFleetWorker: "yes"}
			f.endpoint(id, map[string]any{"workersMin": workers, "workersMax": workers, "rollout": "canary:30%", "env": env, "leaseMs": 10_000, "maxLostWorkers": 100})
			f.completed(id, f.submit(id, workers, 10, nil))
			f.size(id, workers)
			most := f.countWorkers(t, id)
			maps.Copy(env, tc.change)
			f.rest(http.MethodPatch, "/v1/endpoints/"+id, map[string]any{"env": env}, nil)
			c := f.canary(id, endpoint.CanaryRunning)
			f.await("a worker of the new version", func() string {
				running, _ := f.pods(id)
				for _, p := range running {
					if p.EndpointVersion == c.Version && !p.Started.IsZero() {
						return ""
					}
				}
				return fmt.Sprintf("%+v", running)
			})
			leading.Kill()
			ended := f.canary(id, tc.state)
			t.Logf("%s: %s", ended.State, ended.Text)
			f.await("workers of one version", func() string {
				running, _ := f.pods(id)
				want := tc.then(c.FormerVersion, c.Version)
				for _, p := range running {
					if p.EndpointVersion != want {
						return fmt.Sprintf("%s of version %d, want %d\n%s", p.ID, p.EndpointVersion, want, f.decisions(id))
					}
				}
				return ""
			})
			f.size(id, workers)
			if n := most.Load(); n != workers {
				t.Errorf("got up to %d workers at a time, want %d", n, workers)
			}
			standing.Stop(2 * program.StopWithin)
		})
	}
}

// canaryWithin bounds a canary with a change of the leader in it, on a loaded machine.
const canaryWithin = 4 * time.Minute

// canary waits until the endpoint's canary is in the state; unless that is the first one, it
// submits jobs meanwhile.
func (f *fleetSite) canary(id, want string) api.Canary {
	f.t.Helper()
	for end := time.Now().Add(canaryWithin); ; {
		var e api.Endpoint
		f.rest(http.MethodGet, "/v1/endpoints/"+id, nil, &e)
		switch {
		case e.Canary != nil && e.Canary.State == want:
			return *e.Canary
		case time.Now().After(end):
			f.t.Fatalf("canary of %s: got %+v, want %s\n%s", id, e.Canary, want, f.decisions(id))
		case want != endpoint.CanaryRunning:
			f.submit(id, 3, 20, nil)
		}
		<-time.After(500 * time.Millisecond)
	}
}

// countWorkers counts the pods of the endpoint that have a process, from now on until the
// test ends, and returns the most at a time.
func (f *fleetSite) countWorkers(t *testing.T, id string) *atomic.Int64 {
	t.Helper()
	var most atomic.Int64
	testenv.Background(t, func(ctx context.Context) error {
		for look := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				look.Stop()
				return nil
			case <-look.C:
			}
			most.Store(max(most.Load(), int64(len(f.podsOfEndpoint(id)))))
		}
	})
	return &most
}

// podsOfEndpoint are the pods of an endpoint that have a process which was there before and
// after all others were looked for. Another run of this test beside this one has its own.
func (f *fleetSite) podsOfEndpoint(id string) map[string]bool {
	address := f.url + "/v2/" + id + "/"
	first, _ := podsOfProcesses(address) // the pattern of its paths is right
	second, _ := podsOfProcesses(address)
	maps.DeleteFunc(first, func(pod string, _ bool) bool { return !second[pod] })
	return first
}
