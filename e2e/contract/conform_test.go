package contract

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"flightline/e2e/site"
	"flightline/services/conform"
)

// `flightline conform` passes for dev, and notices whatever is wrong: both are
// shown on one dev, side by side, since most of it is waiting.
func TestConform(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	s := site.New(t)
	d := s.Start("dev", "--api-key", contractKey)
	defer d.Tell()
	url := d.Line(site.Ready)
	var wg sync.WaitGroup
	for name, play := range map[string]func(t *testing.T, s *site.Site, url string){
		"all":              conformAll,
		"rates":            conformRates,
		"a foreign worker": conformForeign,
		"a worker's file":  conformFile,
		"breaches":         conformBreaches,
	} {
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				here := *s
				here.T = t
				play(t, &here, url)
			})
		})
	}
	wg.Wait()
	if list := s.OK("endpoint", "list"); strings.Contains(list, "conform-") || !strings.Contains(list, "echo") {
		t.Errorf("got the endpoints %s, want echo, and none that was made to be deleted", list)
	}
}

// conformed runs the command, and wants so many passes and skips and no
// failure.
func conformed(t *testing.T, s *site.Site, url string, passed, skipped int, args ...string) conform.Report {
	t.Helper()
	args = append([]string{"conform", "--base-url", url, "--key", contractKey, "-o", "json"}, args...)
	code, out, errs := s.Run(args...)
	var report conform.Report
	site.Decode(t, out, &report)
	if code != 0 || report.Passed != passed || report.Skipped != skipped {
		t.Errorf("%v: got code %d, %d passed, %d skipped, want 0, %d and %d\n%s%s", args, code, report.Passed, report.Skipped, passed, skipped, out, errs)
	}
	return report
}

// conformAll plays everything but what is optional.
func conformAll(t *testing.T, s *site.Site, url string) {
	t.Helper()
	optional := []string{"forgotten", "rate-cancel", "rate-purge"}
	report := conformed(t, s, url, len(conform.Scenarios())-len(optional), len(optional), "--make")
	var skipped []string
	for _, r := range report.Scenarios {
		if r.Outcome == conform.Skip {
			skipped = append(skipped, r.Name)
		}
	}
	if slices.Sort(skipped); !slices.Equal(skipped, optional) {
		t.Errorf("got %v skipped, want %v", skipped, optional)
	}
}

// conformRates goes over the limits.
func conformRates(t *testing.T, s *site.Site, url string) {
	t.Helper()
	conformed(t, s, url, 2, 0, "--make", "--rates", "--only", "rate-*")
}

// conformForeign plays with workers that are not conform's.
func conformForeign(t *testing.T, s *site.Site, url string) {
	t.Helper()
	for _, id := range []string{"slow", "failing", "idle"} {
		s.OK("endpoint", "create", id)
	}
	s.Start("worker", "slow", "--concurrency", "4", "--", "sh", "-c", "sleep 12; echo {}").Line(site.WorkerReady)
	s.Start("worker", "failing", "--", "false").Line(site.WorkerReady)
	conformed(t, s, url, 13, 1, "--slow-endpoint", "slow", "--failing-endpoint", "failing", "--idle-endpoint", "idle", "--purge",
		"--only", "run,runsync,runsync-wait,states,failed,cancel-*,retry-failed,retry-queued,purge,execution-timeout,health-counts,webhook-failed,stream")
}

// conformFile plays as the worker that `flightline worker env` lets in.
func conformFile(t *testing.T, s *site.Site, url string) {
	t.Helper()
	s.OK("endpoint", "create", "filed")
	file := filepath.Join(s.Dir, "w.env")
	if err := os.WriteFile(file, []byte(s.OK("worker", "env", "filed", "--worker", "w1")), 0o600); err != nil {
		t.Fatal(err)
	}
	conformed(t, s, url, 6, 0, "--worker-env", file, "--only", "worker-gets-job,stream,stream-order,stream-split,retry-input,times")
}
