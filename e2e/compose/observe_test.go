package compose

import (
	"net/url"
	"strings"

	"flightline/e2e/compose/files"
)

// operating is the folder of what the profile observe mounts.
const operating = "../../docs/operating/"

// queries asks Prometheus each expression of the dashboard; those of jobs, which
// ran before, have an answer with something in it.
func (s *stack) queries() {
	t := s.t
	t.Helper()
	asked := 0
	dashboard, err := files.ReadDashboard(operating)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			asked++
			expr := strings.ReplaceAll(target.Expr, "$endpoint", ".*")
			var answer struct {
				Status string
				Data   struct{ Result []any }
			}
			ask := func() bool {
				err := s.get(s.at("PROMETHEUS_PORT")+"/api/v1/query?query="+url.QueryEscape(expr), &answer)
				return err == nil && answer.Status == "success"
			}
			if !ask() {
				t.Errorf("%s: got %+v for %s", p.Title, answer, expr)
			}
			if p.Title == "Jobs waiting" || p.Title == "Workers" && strings.Contains(expr, "flightline_workers{") {
				s.eventually(p.Title+" has series", func() bool { return ask() && len(answer.Data.Result) > 0 })
			}
		}
	}
	t.Logf("%d expressions answered", asked)
}
