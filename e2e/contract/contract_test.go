package contract

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"flightline/services/cli"
	"flightline/services/conformance"
	"flightline/shared/testenv/program"
	"flightline/shared/worker"
)

const contractKey = "contract-admin-key"

// scenario is one row of a table of the contract, or one bound of it.
type scenario func(s *run)

// scenarios are all of them, by table and row. Each uses endpoints of its own,
// so all run side by side.
func scenarios() map[string]scenario {
	all := map[string]scenario{}
	for table, rows := range map[string]map[string]scenario{
		"operation": operations(), "job fields": jobFields(), "authentication": authentication(), "state": states(), "ttl": ttls(),
		"retention": retentions(), "error": errorRows(), "limit": limitRows(), "rate": rates(), "stream": streamRows(), "requests": requestRows(), "statistics": statisticsRows(),
		"idempotency": idempotencyRows(), "workers": workerRows(), "gateway": gatewayRows(), "events": eventRows(), "webhooks": webhookRows(), "explain": explainRows(), "pods": podRows(), "machines": machineRows(), "openai": openAIRows(),
	} {
		for row, play := range rows {
			all[table+": "+row] = play
		}
	}
	return all
}

// together is how many scenarios run side by side: most of them wait. That is
// more than t.Parallel allows on a small machine.
const together = 32

// play runs all scenarios, first those that take longest.
func play(t *testing.T, w *env) {
	t.Helper()
	all := scenarios()
	long := func(name string) int { return -len(regexp.MustCompile("^(rate|statistics|ttl)").FindString(name)) }
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(long(a), long(b)), cmp.Compare(a, b)) })
	next := make(chan string)
	var wg sync.WaitGroup
	for range together {
		wg.Go(func() {
			for name := range next {
				t.Run(name, func(t *testing.T) { all[name](&run{t, w}) })
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	wg.Wait()
}

// The contract holds for a client whose requests go to one of two API
// instances in turn, dev and another process, and every answer is what
// openapi.json says: the scenarios of `flightline conform`, and those of
// Flightline's own operations here. Beside them, on the same dev, conform is
// shown to notice breaches; most of all this is waiting.
func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	s := program.New(t)
	gpus := filepath.Join(s.Dir, "gpus.json")
	if err := os.WriteFile(gpus, []byte(contractGPUs), 0o600); err != nil {
		t.Fatal(err)
	}
	dev := s.Start("dev", "--api-key", contractKey, "--gpus", gpus)
	defer dev.Tell()
	url := dev.Line(program.Ready)
	running, err := cli.ReadRunning(filepath.Join(s.Dir, cli.DefaultData))
	if err != nil {
		t.Fatal(err)
	}
	s.Environ = append(s.Environ, "NATS_URL="+running.NATSURL, "FLIGHTLINE_NATS_USER="+running.NATSUser, "FLIGHTLINE_NATS_PASSWORD="+running.NATSPassword)
	second := s.Start("serve", "api")
	defer second.Tell()
	w := newEnv(t, contractKey, url, url, second.Line(program.Ready))
	w.nats = worker.Config{NATSURL: running.NATSURL, User: running.NATSUser, Password: running.NATSPassword}
	w.endpoint(t, "").shared()
	long := []string{"kept", "webhook-retries"} // half a minute each
	sideBySide(t, s, map[string]func(t *testing.T, s *program.Env){
		"conform in turn": func(t *testing.T, _ *program.Env) {
			t.Helper()
			conformInTurn(t, w, conformance.Config{Skip: append(long, "forgotten", "rate-*")}) // that one takes minutes
		},
		"conform's long ones": func(t *testing.T, _ *program.Env) {
			t.Helper()
			conformInTurn(t, w, conformance.Config{Only: long})
		},
		"conform's rates": func(t *testing.T, _ *program.Env) {
			t.Helper()
			conformInTurn(t, w, conformance.Config{Only: []string{"rate-*"}, Rates: true})
		},
		"own operations":   func(t *testing.T, _ *program.Env) { t.Helper(); play(t, w) },
		"a foreign worker": func(t *testing.T, s *program.Env) { t.Helper(); conformForeign(t, s, url) },
		"a worker's file":  func(t *testing.T, s *program.Env) { t.Helper(); conformFile(t, s, url) },
		"breaches":         func(t *testing.T, _ *program.Env) { t.Helper(); conformBreaches(t, url) },
	})
	if list := s.OK("endpoint", "list"); strings.Contains(list, "conform-") || !strings.Contains(list, "echo") {
		t.Errorf("got the endpoints %s, want echo, and none that conform made", list)
	}
	if t.Failed() {
		return
	}
	if missing := w.checked.unseen(t); len(missing) > 0 {
		t.Errorf("no scenario saw a success of %v", missing)
	}
	for _, status := range []string{"200", "204", "400", "401", "404", "409", "413", "422", "429"} {
		if got := w.checked.seenStatuses(); !slices.Contains(got, status) {
			t.Errorf("got the statuses %v, want %s too", got, status)
		}
	}
}

// sideBySide runs subtests at the same time; t.Parallel would run only as many
// as there are processors.
func sideBySide(t *testing.T, s *program.Env, tests map[string]func(t *testing.T, s *program.Env)) {
	t.Helper()
	var wg sync.WaitGroup
	for name, test := range tests {
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				here := *s
				here.T = t
				test(t, &here)
			})
		})
	}
	wg.Wait()
}

// conformInTurn plays scenarios of `flightline conform`. The command plays all, in
// e2e/security.
func conformInTurn(t *testing.T, w *env, cfg conformance.Config) {
	t.Helper()
	cfg.BaseURL, cfg.RestURL, cfg.Key, cfg.Make, cfg.Together = w.bases[0], w.control, w.key, true, 24
	cfg.Transport, cfg.FactTimeout = &inTurn{env: w, sent: map[string]int{}}, program.Soon
	report, err := conformance.Run(t.Context(), cfg)
	if err != nil {
		t.Error(err)
	}
	for _, r := range report.Scenarios {
		if r.Outcome != conformance.Pass {
			t.Errorf("%s: got %s: %s", r.Name, r.Outcome, r.Detail)
		}
	}
}

func TestMain(m *testing.M) { program.Main(m) }
