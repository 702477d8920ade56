package security

import (
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// An endpoint of an id that was deleted may be another owner's: what it was given before,
// and what came of it, is not shown, and does not run again.
func TestAnEndpointMadeAgainHasNoJobsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	s := program.New(t)
	s.Start("dev", "--no-demo").Line(program.Ready)
	s.OK("endpoint", "create", "ep", "--workers-max", "0")
	s.Start("worker", "ep", "--", "sh", "-c", "exit 3").Line(program.WorkerReady)
	var failed struct{ ID, Status string }
	_, out, _ := s.Run("run", "ep", `{"input":{"secret":1}}`, "--wait", "-o", "json")
	program.Decode(t, out, &failed)
	if failed.Status != "FAILED" {
		t.Fatalf("got %v, want it FAILED", failed)
	}
	s.OK("endpoint", "delete", "ep", "--force")
	s.OK("endpoint", "create", "ep", "--workers-max", "0")
	for _, line := range [][]string{{"status", "ep", failed.ID}, {"retry", "ep", failed.ID}, {"cancel", "ep", failed.ID}} {
		if code, out, errs := s.Run(line...); code == 0 {
			t.Errorf("%s: got %s%s, want it not found", line[0], out, errs)
		}
	}
	if list := s.OK("requests", "ep", "-o", "json"); strings.Contains(list, failed.ID) {
		t.Errorf("got %s, want none of before", list)
	}
}
