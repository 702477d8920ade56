package contract

import (
	"os"
	"path/filepath"
	"testing"

	"flightline/services/conformance"
	"flightline/shared/testenv/program"
)

// conformed runs the command, and wants so many passes and skips and no
// failure.
func conformed(t *testing.T, s *program.Env, url string, passed, skipped int, args ...string) conformance.Report {
	t.Helper()
	args = append([]string{"conform", "--base-url", url, "--key", contractKey, "-o", "json"}, args...)
	code, out, errs := s.Run(args...)
	var report conformance.Report
	program.Decode(t, out, &report)
	if code != 0 || report.Passed != passed || report.Skipped != skipped {
		t.Errorf("%v: got code %d, %d passed, %d skipped, want 0, %d and %d\n%s%s", args, code, report.Passed, report.Skipped, passed, skipped, out, errs)
	}
	return report
}

// conformForeign plays with workers that are not conform's.
func conformForeign(t *testing.T, s *program.Env, url string) {
	t.Helper()
	for _, id := range []string{"slow", "failing", "idle"} {
		s.OK("endpoint", "create", id)
	}
	s.Start("worker", "slow", "--concurrency", "4", "--", "sh", "-c", "sleep 12; echo {}").Line(program.WorkerReady)
	s.Start("worker", "failing", "--", "false").Line(program.WorkerReady)
	conformed(t, s, url, 13, 1, "--slow-endpoint", "slow", "--failing-endpoint", "failing", "--idle-endpoint", "idle", "--purge",
		"--only", "run,runsync,runsync-wait,states,failed,cancel-*,retry-failed,retry-queued,purge,execution-timeout,health-counts,webhook-failed,stream")
}

// conformFile plays as the worker that `flightline worker env` lets in.
func conformFile(t *testing.T, s *program.Env, url string) {
	t.Helper()
	s.OK("endpoint", "create", "filed")
	file := filepath.Join(s.Dir, "w.env")
	if err := os.WriteFile(file, []byte(s.OK("worker", "env", "filed", "--worker", "w1")), 0o600); err != nil {
		t.Fatal(err)
	}
	conformed(t, s, url, 6, 0, "--worker-env", file, "--only", "worker-gets-job,stream,stream-order,stream-split,retry-input,times")
}
