// Package alerts lets Prometheus' own engine evaluate the alert rules of
// docs/operating. It is a module of its own: the engine has many dependencies.
package alerts

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const file = "../../docs/operating/alerts.yaml"

// half an hour, a sample a minute: "load 1m" has 31 of each series.
const samples = 30

// cases has series for which the alert fires, and some for which it does not,
// by the alert's name, and what else is after a colon.
var cases = map[string]struct{ fires, quiet string }{
	"FlightlineQueueStuck": {
		fires: `flightline_queue_oldest_waiting_seconds{endpoint="a"} 400+0x30
			flightline_endpoint_paused{endpoint="a"} 0+0x30`,
		quiet: `flightline_queue_oldest_waiting_seconds{endpoint="a"} 400+0x30
			flightline_endpoint_paused{endpoint="a"} 1+0x30
			flightline_queue_oldest_waiting_seconds{endpoint="b"} 200+0x30
			flightline_endpoint_paused{endpoint="b"} 0+0x30`,
	},
	"FlightlineNoWorkers": {
		fires: `flightline_queue_depth{endpoint="a",class="normal"} 3+0x30
			flightline_workers{endpoint="a",state="idle"} 0+0x30
			flightline_workers{endpoint="a",state="unhealthy"} 2+0x30
			flightline_endpoint_paused{endpoint="a"} 0+0x30`,
		quiet: `flightline_queue_depth{endpoint="a",class="normal"} 3+0x30
			flightline_workers{endpoint="a",state="running"} 1+0x30
			flightline_queue_depth{endpoint="b",class="normal"} 0+0x30
			flightline_queue_depth{endpoint="b",class="low"} 9+0x30
			flightline_workers{endpoint="b",state="idle"} 0+0x30
			flightline_endpoint_paused{endpoint="b"} 0+0x30
			flightline_queue_depth{endpoint="c",class="normal"} 3+0x30
			flightline_workers{endpoint="c",state="idle"} 0+0x30
			flightline_endpoint_paused{endpoint="c"} 1+0x30`,
	},
	"FlightlineJobsFail": {
		fires: `flightline_jobs_finished_total{endpoint="a",status="FAILED"} 0+30x30
			flightline_jobs_finished_total{endpoint="a",status="COMPLETED"} 0+70x30`,
		quiet: `flightline_jobs_finished_total{endpoint="a",status="FAILED"} 0+10x30
			flightline_jobs_finished_total{endpoint="a",status="CANCELLED"} 0+40x30
			flightline_jobs_finished_total{endpoint="a",status="COMPLETED"} 0+70x30`,
	},
	"FlightlineWorkersLost": {
		fires: `flightline_redeliveries_total{endpoint="a"} 0+6x30`,
		quiet: `flightline_redeliveries_total{endpoint="a"} 0+1x30`,
	},
	"FlightlineJobsWithoutWorker": {
		fires: `flightline_jobs_worker_lost{endpoint="a"} 1+0x30`,
		quiet: `flightline_jobs_worker_lost{endpoint="a"} 0+0x30
			flightline_jobs_worker_lost{endpoint="b"} 0 1 0 0 1 0 0 1 0 0 1 0 0`,
	},
	"FlightlineGPUQuarantined": {
		fires: `flightline_gpus_quarantined{instance="a",state="quarantined"} 0+0x10 1+0x9 0 1+0x9
			flightline_gpus_quarantined{instance="a",state="probation"} 0+0x20 1 0+0x9
			flightline_gpus_quarantined{instance="b",state="quarantined"} 0+0x5 _x25`,
		quiet: `flightline_gpus_quarantined{instance="a",state="quarantined"} 0+0x25 1+0x4
			flightline_gpus_quarantined{instance="a",state="probation"} 0+0x30`,
	},
	"FlightlineRecorderBehind": {
		fires: `flightline_recorder_lag_seconds{instance="a"} 0+10x30
			flightline_recorder_lag_seconds{instance="b"} 0+0x3 _x27`,
		quiet: `flightline_recorder_lag_seconds{instance="a"} 5+0x15 _x15
			flightline_recorder_lag_seconds{instance="b"} _x18 0+0x12`,
	},
	"FlightlineRecorderBehind: none is active": {
		fires: `flightline_recorder_lag_seconds 0+0x10 _x20
			up{job="flightline",instance="a"} 1+0x30`,
		quiet: `flightline_recorder_lag_seconds 0+0x30
			up{job="flightline",instance="a"} 1+0x30`,
	},
	"FlightlineWebhooksGivenUp": {
		fires: `flightline_webhook_deliveries_total{result="given_up"} 0+1x30`,
		quiet: `flightline_webhook_deliveries_total{result="given_up"} 7+0x30
			flightline_webhook_deliveries_total{result="failed"} 0+5x30`,
	},
	"FlightlineServerErrors": {
		fires: `flightline_http_requests_total{route="/v2/:endpoint/run",method="POST",code="503"} 0+2x30
			flightline_http_requests_total{route="/v2/:endpoint/run",method="POST",code="200"} 0+100x30`,
		quiet: `flightline_http_requests_total{route="/readyz",method="GET",code="503"} 0+50x30
			flightline_http_requests_total{route="/v2/:endpoint/run",method="POST",code="200"} 0+100x30`,
	},
	"FlightlineJetStreamAway": {
		fires: `flightline_jetstream_errors_total{instance="a"} 0+120x30`,
		quiet: `flightline_jetstream_errors_total{instance="a"} 0+1x30`,
	},
	"FlightlineStreamMissing": {
		fires: `flightline_streams_missing{instance="a"} 0+0x10 1+0x20`,
		quiet: `flightline_streams_missing{instance="a"} 0+0x30`,
	},
	"FlightlineWritesRefused": {
		fires: `flightline_streams_refusing_writes{instance="a"} 0+0x5 3+0x24
			flightline_streams_refusing_writes{instance="b"} 0+0x30`,
		quiet: `flightline_streams_refusing_writes{instance="a"} 0+0x30`,
	},
	"FlightlineDisconnected": {
		fires: `flightline_nats_connected{instance="a"} 0+0x30`,
		quiet: `flightline_nats_connected{instance="a"} 1+0x30`,
	},
	"FlightlineNotReady": {
		fires: `flightline_http_requests_total{instance="a",route="/readyz",method="GET",code="503"} 0+6x30
			flightline_http_requests_total{instance="b",route="/readyz",method="GET",code="200"} 0+6x30`,
		quiet: `flightline_http_requests_total{instance="a",route="/readyz",method="GET",code="503"} 7+0x30
			flightline_http_requests_total{instance="a",route="/readyz",method="GET",code="200"} 0+6x30
			flightline_http_requests_total{instance="a",route="/healthz",method="GET",code="503"} 0+6x30`,
	},
	"FlightlineDown": {
		fires: `up{job="flightline",instance="a"} 0+0x30`,
		quiet: `up{job="flightline",instance="a"} 1+0x30
			up{job="other",instance="a"} 0+0x30`,
	},
}

func TestEachAlertFiresWhenItShouldAndNotElse(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", file, errs)
	}
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			seen[r.Alert] = true
			expr, err := p.ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for name, c := range cases {
				if alert, _, _ := strings.Cut(name, ":"); alert != r.Alert {
					continue
				}
				found = true
				if got := fired(t, r, expr, c.fires); !got {
					t.Errorf("%s: did not fire for\n%s", name, c.fires)
				}
				if got := fired(t, r, expr, c.quiet); got {
					t.Errorf("%s: fired for\n%s", name, c.quiet)
				}
			}
			if !found {
				t.Errorf("%s has no cases", r.Alert)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s: got %v, %v, want a severity and a summary", r.Alert, r.Labels, r.Annotations)
			}
		}
	}
	for name := range cases {
		if alert, _, _ := strings.Cut(name, ":"); !seen[alert] {
			t.Errorf("%s has cases, but there is no such rule", name)
		}
	}
}

// fired reports whether the alert fires, after its "for", at the end of the series.
func fired(t *testing.T, r rulefmt.Rule, expr parser.Expr, series string) bool {
	t.Helper()
	store := promqltest.LoadedStorage(t, "load 1m\n"+indent(series))
	defer store.Close()
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 100_000), store)
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for minute := range samples + 1 {
		at := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
		if _, err := rule.Eval(t.Context(), 0, at, query, nil, 0); err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
	}
	return slices.ContainsFunc(rule.ActiveAlerts(), func(a *rules.Alert) bool { return a.State == rules.StateFiring })
}

func indent(series string) string {
	lines := strings.Split(series, "\n")
	for i := range lines {
		lines[i] = "  " + strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
