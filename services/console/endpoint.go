package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"flightline/shared/client"
	"flightline/shared/endpoint"
)

// span is how much time the charts of an endpoint show.
type span struct {
	Name, Title string
	length      time.Duration
	// step is that of the API, bucket that of the charts.
	step, bucket time.Duration
}

func spans() []span {
	return []span{
		{"hour", "Hour", time.Hour, time.Minute, time.Minute},
		{"day", "Day", 24 * time.Hour, time.Minute, 15 * time.Minute},
		{"week", "Week", 7 * 24 * time.Hour, time.Hour, 2 * time.Hour},
	}
}

// endpointData is an endpoint as it stands.
type endpointData struct {
	ID       string
	Health   client.Health
	Settings *client.Endpoint // nil for a key that may not see them
	Paused   bool
	Scaling  *client.ScalingDecision
	Span     span
	Spans    []span
	Plots    []plot
	Controls bool
}

// Living are the workers that are up or starting.
func (d *endpointData) Living() int {
	return d.Health.Workers.Idle + d.Health.Workers.Running + d.Health.Workers.Initializing
}

func loadEndpoint(v *visit) (any, error) {
	d := &endpointData{ID: v.param("endpoint"), Spans: spans(), Controls: v.May("control", "")}
	d.Span = d.Spans[0]
	for _, s := range d.Spans {
		if s.Name == v.query.Get("span") {
			d.Span = s
		}
	}
	v.follow(d.ID)
	var err error
	if d.Health, err = v.api.Health(v.ctx, d.ID); err != nil {
		return nil, err
	}
	to := time.Now().UTC()
	from := to.Add(-d.Span.length + d.Span.bucket).Truncate(d.Span.bucket)
	stats, err := v.api.Stats(v.ctx, d.ID, client.StatsOptions{From: from, To: to, Step: d.Span.step})
	if err != nil {
		return nil, err
	}
	d.Plots = plotsOf(stats.Points, from, d.Span)
	if !d.Controls {
		return d, nil
	}
	if d.Settings, err = v.control.Endpoints().Get(v.ctx, d.ID); err != nil {
		return nil, err
	}
	d.Paused = !d.Settings.Fleet.PausedUntil.IsZero() // it is there while the endpoint is paused
	decisions, err := v.control.Endpoints().Scaling(v.ctx, d.ID, 1)
	if err == nil && len(decisions) > 0 {
		d.Scaling = &decisions[0]
	}
	return d, err
}

// plotsOf are the charts of the points from then on.
func plotsOf(points []client.StatsPoint, from time.Time, s span) []plot {
	length := int(s.length / s.bucket)
	values := map[string][]int64{}
	for _, name := range []string{"completed", "failed", "timed out", "cancelled", "lost", "delay p50", "delay p95", "execution p50", "execution p95", "workers"} {
		values[name] = make([]int64, length)
	}
	for _, p := range points {
		at, err := time.Parse(time.RFC3339Nano, p.At)
		i := int(at.Sub(from) / s.bucket)
		if err != nil || at.Before(from) || i >= length {
			continue
		}
		values["completed"][i] += p.Completed
		values["failed"][i] += p.Failed
		values["timed out"][i] += p.TimedOut
		values["cancelled"][i] += p.Cancelled
		values["lost"][i] += p.Lost
		for name, most := range map[string]int64{
			"delay p50": p.DelayMs.P50, "delay p95": p.DelayMs.P95, "execution p50": p.ExecutionMs.P50, "execution p95": p.ExecutionMs.P95, "workers": int64(p.Workers),
		} {
			values[name][i] = max(values[name][i], most)
		}
	}
	of := func(title, unit string, stacked bool, named ...string) plot {
		p := plot{Title: title, Unit: unit, First: from, Step: s.bucket, Stacked: stacked}
		for i := 0; i < len(named); i += 2 {
			p.Series = append(p.Series, series{Name: named[i], Class: named[i+1], Values: values[named[i]]})
		}
		return p
	}
	return []plot{
		of("Attempts that ended", "", true, "completed", "ok", "failed", "bad", "timed out", "warn", "cancelled", "dim"),
		of("Delay before the first run", "ms", false, "delay p95", "time", "delay p50", "run"),
		of("Execution", "ms", false, "execution p95", "time", "execution p50", "run"),
		of("Workers", "", false, "workers", "run", "lost", "bad"),
	}
}

// pauseEndpoint pauses for the form's minutes, or until it is resumed.
func pauseEndpoint(v *visit) (string, error) {
	id := v.param("endpoint")
	minutes, err := strconv.Atoi(v.form.Get("minutes"))
	if most := int(endpoint.MaxPause / time.Minute); err != nil || minutes < 0 || minutes > most {
		return "", &pageError{status: http.StatusBadRequest, text: fmt.Sprintf("minutes must be between 0 and %d; 0 is until it is resumed", most)}
	}
	if _, err := v.control.Endpoints().Pause(v.ctx, id, time.Duration(minutes)*time.Minute); err != nil {
		return "", err
	}
	v.notice("%s is paused: it hands out no jobs.", id)
	return pathOf(id), nil
}

func resumeEndpoint(v *visit) (string, error) {
	id := v.param("endpoint")
	if _, err := v.control.Endpoints().Resume(v.ctx, id); err != nil {
		return "", err
	}
	v.notice("%s hands out jobs again.", id)
	return pathOf(id), nil
}

// pathOf is the page of an endpoint.
func pathOf(endpoint string) string { return Root + "/e/" + url.PathEscape(endpoint) }

// loadPurge counts what a purge would cancel.
func loadPurge(v *visit) (any, error) {
	id := v.param("endpoint")
	v.follow(id)
	health, err := v.api.Health(v.ctx, id)
	return &endpointData{ID: id, Health: health}, err
}

func purgeEndpoint(v *visit) (string, error) {
	id := v.param("endpoint")
	removed, err := v.api.PurgeQueue(v.ctx, id)
	if err != nil && errors.Is(v.ctx.Err(), context.DeadlineExceeded) {
		v.notice("The purge has not ended within %s. A purge of many jobs goes on: the number of waiting jobs shows how far it is.", actTimeout)
		return pathOf(id), nil
	}
	if err != nil {
		return "", err
	}
	v.notice("Cancelled: %s.", plural(removed, "waiting job"))
	return pathOf(id), nil
}

// setting is a field of the form of an endpoint's settings.
type setting struct {
	Name, Label, Value, Hint string
	set                      func(*client.EndpointSpec, string) error
}

// settingsData is the form.
type settingsData struct {
	ID     string
	Fields []setting
}

func wholeNumber(name, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, &pageError{status: http.StatusBadRequest, text: name + " must be a whole number, got " + strconv.Quote(text)}
	}
	return n, nil
}

func settingsOf(e *client.Endpoint) []setting {
	numbered := func(name, label string, value int, hint string, set func(*client.EndpointSpec, int)) setting {
		return setting{name, label, strconv.Itoa(value), hint, func(s *client.EndpointSpec, text string) error {
			n, err := wholeNumber(name, text)
			set(s, n)
			return err
		}}
	}
	lasting := func(name, label string, value time.Duration, hint string, set func(*client.EndpointSpec, time.Duration)) setting {
		return setting{name, label, value.String(), hint, func(s *client.EndpointSpec, text string) error {
			d, err := time.ParseDuration(text)
			if err != nil {
				return &pageError{status: http.StatusBadRequest, text: name + " must be a duration like 90s or 10m, got " + strconv.Quote(text)}
			}
			set(s, d)
			return nil
		}}
	}
	return []setting{
		{"name", "Name", e.Name, "for people", func(s *client.EndpointSpec, text string) error { s.Name = &text; return nil }},
		numbered("workersMin", "Workers, at least", e.WorkersMin, "0 to 1000", func(s *client.EndpointSpec, n int) { s.WorkersMin = &n }),
		numbered("workersMax", "Workers, at most", e.WorkersMax, "0 turns the fleet off", func(s *client.EndpointSpec, n int) { s.WorkersMax = &n }),
		numbered("idleTimeout", "Idle seconds", e.Fleet.IdleSeconds, "1 to 3600", func(s *client.EndpointSpec, n int) { s.Fleet.IdleSeconds = &n }),
		numbered("sleepTimeout", "Sleep seconds", e.Fleet.SleepSeconds, "how long an idle worker that can sleep does, 1 to 604800; 0: it is stopped", func(s *client.EndpointSpec, n int) { s.Fleet.SleepSeconds = &n }),
		numbered("scalerValue", "Scaler value", e.Fleet.ScalerValue, e.Fleet.ScalerType, func(s *client.EndpointSpec, n int) { s.Fleet.ScalerValue = &n }),
		lasting("executionTimeout", "Execution timeout", e.ExecutionTimeout, "5 s to 7 days", func(s *client.EndpointSpec, d time.Duration) { s.ExecutionTimeout = d }),
		lasting("ttl", "Time to live of a job", e.TTL, "10 s to 7 days", func(s *client.EndpointSpec, d time.Duration) { s.TTL = d }),
		lasting("retention", "Results are kept for", e.Retention, "1 s to 7 days", func(s *client.EndpointSpec, d time.Duration) { s.Retention = d }),
		lasting("lease", "Lease", e.Lease, "how long a silent worker keeps its job, 10 s to 1 h", func(s *client.EndpointSpec, d time.Duration) { s.Lease = d }),
		numbered("maxLostWorkers", "Workers that an attempt may lose", e.MaxLostWorkers, "1 to 100", func(s *client.EndpointSpec, n int) { s.MaxLostWorkers = &n }),
		{"rollout", "Rollout", cmp.Or(e.Fleet.Rollout, "replace"), "replace, or canary:10% to try a new version first", func(s *client.EndpointSpec, text string) error { s.Fleet.Rollout = cmp.Or(text, "replace"); return nil }},
		numbered("failureBudget", "Failures in a row that pause it", e.FailureBudget, "of one cause; 0 to 1000, 0 never pauses", func(s *client.EndpointSpec, n int) { s.FailureBudget = &n }),
		numbered("maxQueueJobs", "Jobs that wait or run, at most", int(e.MaxQueueJobs), "1 to 10^9", func(s *client.EndpointSpec, n int) { s.MaxQueueJobs = int64(n) }),
	}
}

func loadSettings(v *visit) (any, error) {
	id := v.param("endpoint")
	e, err := v.control.Endpoints().Get(v.ctx, id)
	if err != nil {
		return nil, err
	}
	return &settingsData{ID: id, Fields: settingsOf(e)}, nil
}

// changeSettings sends the fields that differ from what the form was shown with (was.NAME), so
// that what changed since then stays.
func changeSettings(v *visit) (string, error) {
	id := v.param("endpoint")
	e, err := v.control.Endpoints().Get(v.ctx, id)
	if err != nil {
		return "", err
	}
	var spec client.EndpointSpec
	changed := 0
	for _, field := range settingsOf(e) {
		given := v.form.Get(field.Name)
		if !v.form.Has(field.Name) || given == field.Value || v.form.Has("was."+field.Name) && given == v.form.Get("was."+field.Name) {
			continue
		}
		changed++
		before := spec
		if err := field.set(&spec, given); err != nil {
			return "", err
		}
		if reflect.DeepEqual(spec, before) { // a zero, which no request has
			return "", &pageError{status: http.StatusBadRequest, text: field.Name + " must not be " + strconv.Quote(given)}
		}
	}
	if changed == 0 {
		v.notice("Nothing was changed.")
		return pathOf(id), nil
	}
	if _, err := v.control.Endpoints().Update(v.ctx, id, spec); err != nil {
		return "", err
	}
	v.notice("Changed: %s.", plural(changed, "setting"))
	return pathOf(id), nil
}
