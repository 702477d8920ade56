package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/logs"
	"flightline/shared/pod"
	"flightline/shared/retry"
)

const (
	// stepsRest is the least pause between two looks at what happened to workers.
	stepsRest = 250 * time.Millisecond
	// stepsWindow is how far back a look goes from the one before it, or from the start of
	// a term. A step that is noted twice within 2 min is one line.
	stepsWindow = 100 * time.Second
)

// stepNotes are the steps of workers that are in their logs.
type stepNotes struct {
	*Service
	// since is when the steps began that are to be noted.
	since time.Time
	noted map[string]bool // by id, of those since then
}

// noteSteps writes what happens to the workers of fleets into their logs, for one term.
func (s *Service) noteSteps(ctx context.Context) {
	n := stepNotes{Service: s, since: s.queue.Now().Add(-stepsWindow)}
	for ctx.Err() == nil {
		began, changed := time.Now(), s.registry.Pods.Changed()
		if err := n.noteAll(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.WarnContext(ctx, "what happens to workers is not in their logs, trying again", "err", err)
			}
			_ = retry.Sleep(ctx, followRetryDelay) // the loop ends with ctx
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
			_ = retry.Sleep(ctx, stepsRest-time.Since(began)) // many change at once
		}
	}
}

// noteAll notes the steps that are not noted yet. Those that it does not get done are
// left to the next.
func (n *stepNotes) noteAll(ctx context.Context) error {
	began := n.queue.Now()
	pods, err := n.registry.Pods.Known(ctx)
	if err != nil {
		return err
	}
	noted := map[string]bool{}
	var errs []error
	for _, p := range pods.All {
		if !fleet(p) || p.Status != pod.Running && p.Changed.Before(n.since) {
			continue
		}
		for _, step := range p.Steps() {
			id := fmt.Sprintf("%s.%s.%d", p.ID, step.Name, step.At.UnixNano())
			if step.At.Before(n.since) {
				continue
			}
			if !n.noted[id] {
				if err := n.note(ctx, p, id, step); err != nil {
					errs = append(errs, err)
					break // the later ones follow it
				}
			}
			noted[id] = true
		}
	}
	n.noted = noted
	if errs == nil {
		n.since = job.Later(n.since, began.Add(-stepsWindow))
	}
	return errors.Join(errs...)
}

func (n *stepNotes) note(ctx context.Context, p pod.Pod, id string, step pod.Step) error {
	e, err := n.registry.Endpoints.Get(ctx, p.Endpoint)
	if errors.Is(err, endpoint.ErrNotFound) || err == nil && p.Created.Before(e.Created) {
		return nil // its logs are gone with its endpoint
	}
	if err != nil {
		return err
	}
	level := "info"
	if step.Failed {
		level = "warn"
	}
	source := logs.Source{Endpoint: e.ID, Partition: e.Partition, Worker: p.ID, Env: p.Spec.Env}
	return logs.Note(ctx, n.queue.Bus(), source, id, step.At, level, step.Text)
}
