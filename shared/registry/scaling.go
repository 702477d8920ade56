package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/streams"
)

// RoleAutoscaler is the role of the election that decides which autoscaler is
// active.
const RoleAutoscaler = "autoscaler"

// maxDecisions bounds what History returns.
const maxDecisions = 1000

// Reasons of decisions. Those from ScalingBackoff on say what keeps the fleet
// from its number.
const (
	// ScalingSteady is that nothing keeps the fleet from its number any more.
	ScalingSteady = "steady"
	// ScalingMinimum is that there were fewer workers than workersMin.
	ScalingMinimum = "minimum"
	// ScalingFromZero is that a job waits and there is no worker.
	ScalingFromZero = "from_zero"
	// ScalingDelay is that a job has waited for longer than scalerValue seconds.
	ScalingDelay = "queue_delay"
	// ScalingRequests is that there are more or fewer jobs per worker than scalerValue.
	ScalingRequests = "request_count"
	// ScalingIdle is that workers were idle for idleTimeout.
	ScalingIdle = "idle"
	// ScalingBound is that workersMax was lowered below what there is.
	ScalingBound = "bound"
	// ScalingReplace is that a worker was started from what the endpoint no longer says.
	ScalingReplace = "replace"
	// ScalingYield is that a worker's GPU goes to another endpoint, whose jobs wait.
	ScalingYield = "yield"
	// ScalingBackoff is that workers ended soon after their start.
	ScalingBackoff = "backoff"
	// ScalingFailing is that the last jobs failed for one cause on all workers.
	ScalingFailing = "failing"
	// ScalingPaused is that the endpoint is paused.
	ScalingPaused = "paused"
	// ScalingNoMachine is that no autoscaler with the endpoint's driver runs.
	ScalingNoMachine = "no_machine"
	// ScalingNoGPU is that no GPU that would do is free.
	ScalingNoGPU = "no_gpu"
	// ScalingLeaving is that workers which drain are still there, and make up
	// workersMax with the others.
	ScalingLeaving = "leaving"
	// ScalingInvalid is that the endpoint's template is not there.
	ScalingInvalid = "invalid"
	// ScalingUnknown is that a number could not be read.
	ScalingUnknown = "unknown"
)

// Decision is what the autoscaler decided about an endpoint's workers. It is
// written when the number or the reason changes, and holds until the next.
type Decision struct {
	Endpoint string    `json:"endpoint"`
	At       time.Time `json:"at"`
	// Wanted is how many workers there should be, Current how many there were,
	// those included that start, those that drain not.
	Wanted  int `json:"wanted"`
	Current int `json:"current"`
	// Starting, Idle and Running are the workers of Current by state.
	Starting int `json:"starting"`
	Idle     int `json:"idle"`
	Running  int `json:"running"`
	// Unhealthy and Draining workers are in none of the numbers above.
	Unhealthy int `json:"unhealthy"`
	Draining  int `json:"draining"`
	// Queued counts the waiting jobs without low priority, QueuedLow those with
	// it, InProgress the running ones of normal priority.
	Queued     int `json:"queued"`
	QueuedLow  int `json:"queuedLow"`
	InProgress int `json:"inProgress"`
	// OldestWait is how long the first of Queued has waited; 0 if that was not
	// asked for.
	OldestWait time.Duration `json:"oldestWait"`
	// Reason is one of the Scaling… constants, Text a sentence about it.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Hold means that nothing was started or stopped, because a number was unknown.
	Hold bool `json:"hold,omitempty"`
	// The settings that it was decided by.
	ScalerType  string `json:"scalerType"`
	ScalerValue int    `json:"scalerValue"`
	WorkersMin  int    `json:"workersMin"`
	WorkersMax  int    `json:"workersMax"`
}

// Scaling is what the autoscaler decided, by endpoint.
type Scaling struct {
	js      jetstream.JetStream
	bus     *bus.Client
	leaders *Table[Leader]
}

// Alive reports whether an autoscaler is active, within the 15 s that its
// election takes to notice its end. It returns bus.ErrUnavailable.
func (s *Scaling) Alive(ctx context.Context) (bool, error) {
	_, _, err := s.leaders.Get(ctx, RoleAutoscaler)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Append writes a decision. It returns ErrInvalid and bus.ErrUnavailable.
func (s *Scaling) Append(ctx context.Context, d Decision) error {
	if !endpoint.ValidID(d.Endpoint) {
		return fmt.Errorf("%w: decision about %q", ErrInvalid, d.Endpoint)
	}
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write decision about %s: %w", d.Endpoint, err)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.js.Publish(call, streams.ScalingSubject(d.Endpoint), data)
	return explain(ctx, "write decision about "+d.Endpoint, err)
}

// Last returns what holds now, or ErrNotFound if nothing was ever decided.
func (s *Scaling) Last(ctx context.Context, endpointID string) (Decision, error) {
	if !endpoint.ValidID(endpointID) {
		return Decision{}, endpoint.ErrNotFound
	}
	doing := "read the last decision about " + endpointID
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := s.bus.LeaderLast(call, streams.Scaling, streams.ScalingSubject(endpointID))
	if err != nil {
		return Decision{}, explain(ctx, doing, err)
	}
	var last Decision
	if err := json.Unmarshal(found.Data, &last); err != nil {
		return Decision{}, fmt.Errorf("%s: %w", doing, err)
	}
	return last, nil
}

// History returns the last decisions about an endpoint, the newest first, at
// most 1000. An endpoint with none is no error. Any replica may
// answer, so that a decision of the last moment may be missing.
func (s *Scaling) History(ctx context.Context, endpointID string, most int) ([]Decision, error) {
	if !endpoint.ValidID(endpointID) {
		return nil, endpoint.ErrNotFound
	}
	doing := "read decisions about " + endpointID
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := s.bus.StreamState(call, streams.Scaling)
	if err != nil {
		return nil, explain(ctx, doing, err)
	}
	found, _, err := s.bus.Backwards(call, bus.Back{
		Stream: streams.Scaling, Filter: streams.ScalingSubject(endpointID),
		First: state.FirstSeq, Before: state.LastSeq + 1, Most: min(max(1, most), maxDecisions), Data: true,
	})
	if err != nil {
		return nil, explain(ctx, doing, err)
	}
	decisions := make([]Decision, len(found))
	for i, m := range found {
		if err := json.Unmarshal(m.Data, &decisions[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
	}
	return decisions, nil
}

// Drop forgets what was decided about an endpoint, which is being deleted.
func (s *Scaling) Drop(ctx context.Context, endpointID string) error {
	if !endpoint.ValidID(endpointID) {
		return endpoint.ErrNotFound
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return explain(ctx, "forget decisions about "+endpointID, s.bus.Purge(call, streams.Scaling, streams.ScalingSubject(endpointID)))
}
