package alerts

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// Prometheus evaluates every expression of the dashboard, with what
// Grafana puts in for its variables.
func TestEachPanelIsEvaluated(t *testing.T) {
	data, err := os.ReadFile("../../docs/operating/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	store := promqltest.LoadedStorage(t, "load 1m\n  flightline_queue_depth{endpoint=\"a\",class=\"normal\"} 3+0x30\n")
	defer store.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)
	evaluated := 0
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s: asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$endpoint", "a|b")
			if strings.Contains(expr, "$") {
				t.Errorf("%s: %s has a variable that is not known", p.Title, expr)
			}
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(expr); err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			query, err := engine.NewInstantQuery(t.Context(), store, nil, expr, time.Unix(1800, 0))
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			result := query.Exec(t.Context())
			evaluated++
			if result.Err != nil {
				t.Errorf("%s: %v", p.Title, result.Err)
			}
			if p.Title == "Jobs waiting" && !strings.Contains(result.String(), "=> 3") {
				t.Errorf("%s: got %s, want the 3 jobs that wait", p.Title, result)
			}
			query.Close()
		}
	}
	if evaluated < 10 {
		t.Errorf("got %d expressions, want those of a dashboard", evaluated)
	}
}
