package contract

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"

	"flightline/e2e/site"
	"flightline/services/cli"
	"flightline/shared/bus/bustest"
	"flightline/shared/worker"
)

const contractKey = "contract-admin-key"

// scenario is one row of a table of the contract, or one bound of it.
type scenario func(s *stage)

// scenarios are all of them, by table and row. Each uses endpoints of its own,
// so all run side by side.
func scenarios() map[string]scenario {
	all := map[string]scenario{}
	for table, rows := range map[string]map[string]scenario{
		"operation": operations(), "job fields": jobFields(), "authentication": authentication(), "state": states(), "ttl": ttls(),
		"retention": retentions(), "error": errorRows(), "limit": limitRows(), "rate": rates(), "stream": streamRows(), "requests": requestRows(),
		"idempotency": idempotencyRows(), "workers": workerRows(), "gateway": gatewayRows(), "events": eventRows(), "webhooks": webhookRows(), "explain": explainRows(), "pods": podRows(), "openai": openAIRows(),
	} {
		for row, play := range rows {
			all[table+": "+row] = play
		}
	}
	return all
}

// together is how many scenarios run side by side: most of them wait. That is
// more than t.Parallel allows on a small machine.
const together = 48

// play runs all scenarios, first those that take longest.
func play(t *testing.T, w *world) {
	t.Helper()
	all := scenarios()
	long := func(name string) int { return -len(regexp.MustCompile("^(rate|ttl)").FindString(name)) }
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(long(a), long(b)), cmp.Compare(a, b)) })
	next := make(chan string)
	var wg sync.WaitGroup
	for range together {
		wg.Go(func() {
			for name := range next {
				t.Run(name, func(t *testing.T) { all[name](&stage{t, w}) })
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	wg.Wait()
}

// Each row of the contract's tables holds, at its bounds, for the system in
// one process.
func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	s := site.New(t)
	d := s.Start("dev", "--no-demo", "--api-key", contractKey)
	defer d.Tell()
	url := d.Line(site.Ready)
	running, err := cli.ReadRunning(s.Dir + "/" + cli.DefaultData)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, contractKey, url, url)
	w.nats = worker.Config{NATSURL: running.NATSURL, User: running.NATSUser, Password: running.NATSPassword}
	play(t, w)
	if c, _ := w.http.Transport.(*checked); !t.Failed() {
		if missing := c.unseen(t); len(missing) > 0 {
			t.Errorf("no scenario saw a success of %v", missing)
		}
		for _, status := range []string{"200", "204", "400", "401", "404", "409", "413", "422", "429"} {
			if got := c.seenStatuses(); !slices.Contains(got, status) {
				t.Errorf("got the statuses %v, want %s too", got, status)
			}
		}
	}
}

// They hold as well for a client whose requests go to one of two API
// instances in turn.
func TestContractHoldsForTwoInstancesInTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	nats := bustest.New(t).Config()
	s := site.New(t)
	s.Env = append(s.Env, "NATS_URL="+nats.URL, "FLIGHTLINE_NATS_USER="+nats.User, "FLIGHTLINE_NATS_PASSWORD="+nats.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+contractKey, "FLIGHTLINE_WEBHOOK_ALLOW_HTTP=true", "FLIGHTLINE_WEBHOOK_ALLOW_NETWORKS=127.0.0.0/8")
	control, first, second := s.Start("serve", "control", "recorder", "webhook", "gateway"), s.Start("serve", "api"), s.Start("serve", "api")
	for _, d := range []*site.Daemon{control, first, second} {
		defer d.Tell()
	}
	w := newWorld(t, contractKey, control.Line(site.Ready), first.Line(site.Ready), second.Line(site.Ready))
	w.nats = worker.Config{NATSURL: nats.URL, User: nats.User, Password: nats.Password}
	w.place(t, "").shared()
	play(t, w)
}
