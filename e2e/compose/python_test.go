package compose

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// call is one of RunPod's package, which repeats connections that were refused
// and nothing else.
type call struct {
	Call  string  `json:"call"`
	Error string  `json:"error"` // "" of a right call
	Began float64 `json:"began"` // seconds since 1970
	Ended float64 `json:"ended"`
}

const (
	// fewCalls are too few to be a load.
	fewCalls = 50
	// partBusy is the part of the calls that may be answered 503: one of twenty.
	partBusy = 20
	// settles is how long after NATS is healthy again calls may still be answered
	// 503: those that are held then, and those that find no leader of a stream yet.
	settles = 30 * time.Second
)

// judge returns what is wrong with the calls, given when NATS was away. Nearly all
// are right. What was not accepted for want of NATS is answered 503, as
// docs/deploy.md says, and that only while NATS is away.
func judge(calls []call, away span) (wrong []string) {
	if len(calls) < fewCalls {
		wrong = append(wrong, fmt.Sprintf("%d calls: want a load", len(calls)))
	}
	from, to := seconds(away.from), seconds(away.to.Add(settles))
	busy := 0
	for _, c := range calls {
		switch {
		case c.Error == "":
		case !strings.Contains(c.Error, "503 Server Error"):
			wrong = append(wrong, c.Call+": "+c.Error)
		case c.Ended < from || c.Ended > to:
			wrong = append(wrong, fmt.Sprintf("%s: %s, %.1f s after NATS went away for %v", c.Call, c.Error, c.Ended-from, away.to.Sub(away.from)))
		default:
			busy++
		}
	}
	if most := len(calls) / partBusy; busy > most {
		wrong = append(wrong, fmt.Sprintf("%d of %d calls were answered 503: want %d at most", busy, len(calls), most))
	}
	return wrong
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// callsOf are the calls of a client's log, and whether it came to its end.
func callsOf(log string) (calls []call, done bool) {
	for line := range strings.Lines(log) {
		var c call
		if json.Unmarshal([]byte(strings.TrimSpace(line)), &c) == nil {
			calls = append(calls, c)
		}
	}
	return calls, strings.Contains(log, "DONE")
}

// python ends the client on RunPod's package and judges its calls.
func (s *stack) python(t *testing.T) {
	t.Helper()
	within := 150 * time.Second
	if err := s.container("client").Stop(t.Context(), &within); err != nil {
		t.Fatal(err)
	}
	calls, done := callsOf(s.logs("client"))
	failed := len(calls) - len(slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.Error != "" }))
	t.Logf("RunPod's client: %d calls, %d failed", len(calls), failed)
	if !done {
		t.Error("RunPod's client did not come to its end")
	}
	for _, why := range judge(calls, s.away["nats"]) {
		t.Errorf("RunPod's client: %s", why)
	}
}

func TestJudgeCalls(t *testing.T) {
	at := time.Unix(1000, 0)
	away := span{at, at.Add(5 * time.Second)}
	const busy = "HTTPError: 503 Server Error: Service Unavailable for url: http://api:8080"
	several := func(n int, c call) []call { return slices.Repeat([]call{c}, n) }
	right := call{Call: "run", Began: 900, Ended: 901}
	for name, test := range map[string]struct {
		calls []call
		wrong int
	}{
		"none":                       {nil, 1},
		"all right":                  {several(100, right), 0},
		"too few":                    {several(fewCalls-1, right), 1},
		"503 while NATS is away":     {append(several(100, right), several(5, call{Error: busy, Began: 1001, Ended: 1006})...), 0},
		"503 of one that was held":   {append(several(100, right), call{Error: busy, Began: 990, Ended: 1006}), 0},
		"503 a little later":         {append(several(100, right), call{Error: busy, Began: 1033, Ended: 1034}), 0},
		"503 before":                 {append(several(100, right), call{Error: busy, Began: 900, Ended: 901}), 1},
		"503 long after":             {append(several(100, right), call{Error: busy, Began: 1034, Ended: 1036}), 1},
		"503 of too many":            {append(several(100, right), several(6, call{Error: busy, Began: 1001, Ended: 1006})...), 1},
		"503 of all":                 {several(100, call{Error: busy, Began: 1001, Ended: 1006}), 1},
		"wrong while NATS is away":   {append(several(100, right), call{Error: "wrong output None", Began: 1001, Ended: 1006}), 1},
		"refused while NATS is away": {append(several(100, right), call{Error: "ConnectionError", Began: 1001, Ended: 1006}), 1},
	} {
		if got := judge(test.calls, away); len(got) != test.wrong {
			t.Errorf("%s: got %q, want %d complaints", name, got, test.wrong)
		}
	}
}
