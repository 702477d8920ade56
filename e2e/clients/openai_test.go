package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"flightline/shared/client"
	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

// parrot starts a worker that speaks as worker-vllm does, on an endpoint of its
// own. stopped counts the handlers that were stopped before they were done.
type parrot func(t *testing.T) (endpoint string, stopped func() int)

// publishedParrot runs the example on the published package.
func publishedParrot(t *testing.T) (endpoint string, stopped func() int) {
	t.Helper()
	b := newBench(t, filepath.Join(examples, "chat.py"))
	w := b.start("")
	return b.endpoint, func() int {
		text, err := os.ReadFile(w.log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "stopped ")
	}
}

// nativeParrot is a worker of ours.
func nativeParrot(t *testing.T) (endpoint string, stopped func() int) {
	t.Helper()
	s := sharedSite(t)
	endpoint = s.endpoint(t, client.EndpointSpec{})
	return endpoint, startHandler(t, s, endpoint, (*goWorker).parrot).cancelled
}

// Whichever of OpenAI's clients talks to whichever worker, it sees the same.
func TestPublishedOpenAIClientsSeeWhatOpenAIWouldShowThem(t *testing.T) {
	t.Parallel()
	clients := map[string]struct {
		what, script string
		run          func(t *testing.T, what, script string, env ...string) *exec.Cmd
	}{
		"python":     {python, "python/openai_client.py", pythonScript},
		"javascript": {node, "javascript/openai_client.js", nodeScript},
	}
	workers := map[string]parrot{"runpod worker": publishedParrot, "go worker": nativeParrot}
	for name, test := range clients {
		for kind, start := range workers {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				cmd := test.run(t, test.what, test.script)
				s := sharedSite(t)
				worked, stopped := start(t)
				limited := s.endpoint(t, client.EndpointSpec{Limits: map[string]client.Limit{ratelimit.OpenAI: {Requests: 1}}})
				startHandler(t, s, limited, (*goWorker).parrot)
				cmd.Env = append(cmd.Env, "BASE_URL="+s.URL+"/v2", "API_KEY="+s.APIKey, "WORKED="+worked, "LIMITED="+limited)
				wantGolden(t, "openai.golden", transcript(t, cmd))
				const left = 2 // the client aborts one, and gives up on another
				testenv.Eventually(t, fmt.Sprintf("the handlers of %d jobs whose client left are stopped", left), func() bool { return stopped() == left })
			})
		}
	}
}
