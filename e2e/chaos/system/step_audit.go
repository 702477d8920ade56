package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// step is a line of a worker's log that says what happened to the worker.
type step struct {
	Time     time.Time `json:"time"`
	WorkerID string    `json:"workerId"`
	Stream   string    `json:"stream"`
	Text     string    `json:"text"`
}

func (s step) ends() bool { return strings.HasPrefix(s.Text, "ended: ") }

// stepsOf are the steps of an endpoint's workers, in the order of the log.
func (f *gpuFleet) stepsOf(ctx context.Context, endpoint string) ([]step, error) {
	text, err := f.output(ctx, f.cfg.Binary, "logs", endpoint, "-o", "json", "--url", "http://"+f.listen, "--api-key", apiKey)
	if err != nil {
		return nil, err
	}
	var steps []step
	for lines := json.NewDecoder(strings.NewReader(text)); ; {
		var s step
		switch err := lines.Decode(&s); {
		case errors.Is(err, io.EOF):
			return steps, nil
		case err != nil:
			return nil, fmt.Errorf("read the logs of %s: %w", endpoint, err)
		case s.Stream == "system":
			steps = append(steps, s)
		}
	}
}

// wrongSteps are the faults of a log of steps, in which each of the workers has to be found:
// with its start, each step once and in order, and its end once and last.
func wrongSteps(steps []step, workers []string) (found []string) {
	add := func(worker, format string, args ...any) {
		found = append(found, "worker "+worker+" "+fmt.Sprintf(format, args...))
	}
	seen, last := map[step]bool{}, map[string]step{}
	started := map[string]bool{}
	for _, s := range steps {
		before, known := last[s.WorkerID]
		switch {
		case seen[s]:
			add(s.WorkerID, "has the line %q of %s twice", s.Text, s.Time.Format(time.RFC3339Nano))
		case known && before.ends():
			add(s.WorkerID, "has the line %q behind its end, %q", s.Text, before.Text)
		case known && s.Time.Before(before.Time):
			add(s.WorkerID, "has the line %q of %s behind %q of %s", s.Text, s.Time.Format(time.RFC3339Nano), before.Text, before.Time.Format(time.RFC3339Nano))
		}
		seen[s], last[s.WorkerID] = true, s
		started[s.WorkerID] = started[s.WorkerID] || s.Text == "starting"
	}
	for _, worker := range workers {
		if !started[worker] {
			add(worker, "has no line that says it was starting")
		}
		if s := last[worker]; !s.ends() {
			add(worker, "has no end in its log, and %q is its last line", s.Text)
		}
	}
	return found
}

// auditSteps reports what is wrong in the logs of both endpoints once no worker is left.
func (f *gpuFleet) auditSteps(ctx context.Context) error {
	for _, endpoint := range []string{endpointName, rivalName} {
		workers := f.audit.workersOf(endpoint)
		var found []string
		var steps []step
		err := until(ctx, calmTimeout, func() (err error) { // a line comes a moment after its step
			if steps, err = f.stepsOf(ctx, endpoint); err != nil {
				return err
			}
			if found = wrongSteps(steps, workers); len(found) > 0 {
				return errors.New(found[0])
			}
			return nil
		})
		if err != nil && found == nil {
			return err
		}
		for _, text := range found {
			f.violate(ruleSteps, "%s: %s", endpoint, text)
		}
		f.note("%s: %d workers were seen, and %d lines say what happened to them and others", endpoint, len(workers), len(steps))
	}
	return nil
}
