package clients

import (
	"fmt"
	"os/exec"
	"testing"

	"flightline/shared/client"
	"flightline/shared/testenv"
)

// A client goes through all its calls and their errors, and prints what it was
// given; the transcript is what its users see.
func TestPublishedClientsSeeWhatRunPodWouldShowThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		what, script string
		run          func(t *testing.T, what, script string, env ...string) *exec.Cmd
		held         int // jobs that it cancels while they run
	}{
		"python":     {python, "python/sync_client.py", pythonScript, 2},
		"asyncio":    {python, "python/asyncio_client.py", pythonScript, 2},
		"javascript": {node, "javascript/client.js", nodeScript, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := test.run(t, test.what, test.script)
			s := sharedSite(t)
			worked := s.endpoint(t, client.EndpointSpec{})
			w := startGoWorker(t, s, worked)
			cmd.Env = append(cmd.Env, "BASE_URL="+s.URL+"/v2", "API_KEY="+s.APIKey,
				"WORKED="+worked, "IDLE="+s.endpoint(t, client.EndpointSpec{}),
				"LIMITED="+s.endpoint(t, client.EndpointSpec{Limits: map[string]client.Limit{"run": {Requests: 1}, "status": {Requests: 1}}}),
			)
			wantGolden(t, name+".golden", transcript(t, cmd))
			testenv.Eventually(t, fmt.Sprintf("the handlers of %d cancelled jobs learn of it", test.held), func() bool { return w.cancelled() == test.held })
		})
	}
}
