package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/pod"
)

// quietEvery is the pause between two looks whether a worker has finished.
const quietEvery = 500 * time.Millisecond

// start makes the pod run, if its record still says so.
func (a *agent) start(ctx context.Context, id string) {
	p, err := a.registry.Pods.Get(ctx, id)
	if err != nil || p.Status != pod.Running || !a.here(p) {
		a.complain(ctx, "pod not started, trying again", id, err)
		return
	}
	if !p.Drain.At.IsZero() {
		a.exit(ctx, p, pod.Leave, "it was drained, and is not started again")
		return
	}
	if lack := a.lacks(p.Spec); lack != "" {
		a.exit(ctx, p, pod.Exit, "it could not be started: "+lack)
		return
	}
	env, err := a.environment(ctx, p)
	if err != nil {
		a.complain(ctx, "pod not started, trying again", id, err)
		return
	}
	volume, err := a.volume(ctx, p)
	if errors.Is(err, pod.ErrNotFound) {
		a.exit(ctx, p, pod.Exit, "it could not be started: its network volume is not there")
		return
	}
	if err != nil {
		a.complain(ctx, "pod not started, trying again", id, err)
		return
	}
	now := a.queue.Now().UTC()
	err = a.driver.Start(ctx, driver.Start{PodID: id, Endpoint: p.Endpoint, Life: p.Starts, Spec: p.Spec, Env: env, Volume: volume})
	switch {
	case ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable):
		a.complain(ctx, "pod not started, trying again", id, err)
		return
	case err != nil:
		a.exit(ctx, p, pod.Exit, "it could not be started: "+plain(id, err))
		return
	}
	a.complain(ctx, "start of a pod not noted", id, a.started(ctx, p, now))
	a.log.InfoContext(ctx, "pod started", "pod", id, "endpoint", p.Endpoint, "driver", a.driver.Name())
}

// started notes a start, unless the pod was stopped meanwhile.
func (a *agent) started(ctx context.Context, was pod.Pod, now time.Time) error {
	_, err := a.registry.Pods.Update(ctx, was.ID, func(p pod.Pod) (pod.Pod, error) {
		if p.Status != pod.Running || p.Starts != was.Starts {
			return p, errClaimed
		}
		if p.Started, p.Machine = now, a.facts; p.Change == waitsFor(p.Driver) {
			p.Changed, p.Change = now, "started"
		}
		return p, nil
	})
	if errors.Is(err, errClaimed) {
		return nil
	}
	return err
}

// lacks says what of the spec this machine does not have, as far as that is
// known, "" for nothing. An engine says so itself.
func (a *agent) lacks(s pod.Spec) string {
	if have := len(a.facts.GPUs); a.driver.Name() == pod.Process && s.GPUs > have {
		return fmt.Sprintf("gpuCount is %d, and the machine has %d GPUs", s.GPUs, have)
	}
	return ""
}

// restart ends an earlier life of a pod that was stopped and started since, and
// starts it.
func (a *agent) restart(ctx context.Context, id string) {
	a.stops <- struct{}{}
	err := a.driver.Stop(ctx, id, a.cfg.Grace)
	<-a.stops
	if err != nil {
		a.complain(ctx, "pod not stopped, trying again", id, err)
		return
	}
	a.start(ctx, id)
}

// environment is all that the pod sees. A worker gets a new token with it.
func (a *agent) environment(ctx context.Context, p pod.Pod) (map[string]string, error) {
	if p.Endpoint == "" {
		return maps.Clone(p.Spec.Env), nil
	}
	e, err := a.registry.Endpoints.Get(ctx, p.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("start pod %s: %w", p.ID, err)
	}
	token, _, err := a.registry.Tokens.IssueForFleet(ctx, p.Endpoint, p.ID)
	if err != nil {
		return nil, fmt.Errorf("start pod %s: %w", p.ID, err)
	}
	env := map[string]string{}
	for _, v := range pod.WorkerEnvironment(pod.Worker{
		BaseURL: a.cfg.GatewayURL, Endpoint: p.Endpoint, ID: p.ID, Token: token,
		PingInterval: min(pingEvery, e.Lease/3), Env: p.Spec.Env,
	}) {
		env[v.Name] = v.Value
	}
	return env, nil
}

// volume is where the pod's network volume is on the host, "" for none.
func (a *agent) volume(ctx context.Context, p pod.Pod) (string, error) {
	if p.VolumeID == "" {
		return "", nil
	}
	v, err := a.registry.Volumes.Get(ctx, p.VolumeID)
	return v.Path, err
}

// surplus stops what runs here without a record that says so.
func (a *agent) surplus(ctx context.Context, id string, i driver.Instance) {
	p, err := a.registry.Pods.Get(ctx, id)
	switch {
	case errors.Is(err, pod.ErrNotFound):
		p = pod.Pod{ID: id, Endpoint: i.Endpoint, Change: "nobody knows of it"}
	case err != nil:
		a.complain(ctx, "pod not looked at, trying again", id, err)
		return
	case p.Status == pod.Running && p.Driver == a.driver.Name() && p.MachineID == a.machine:
		return // it is wanted after all; the list was old
	case i.Running && p.Status == pod.Exited && p.Change == vanished && p.Endpoint == "" && p.Driver == a.driver.Name() && p.MachineID == a.machine:
		// It went on while we were away, as containers do.
		_, err := a.registry.Pods.Move(ctx, id, pod.Start, "its autoscaler is back", a.queue.Now(), func(x *pod.Pod) {
			x.Started, x.Starts = p.Started, i.Life
		})
		a.complain(ctx, "pod that runs not noted, trying again", id, err)
		return
	}
	if i.Running {
		a.log.InfoContext(ctx, "stopping pod", "pod", id, "endpoint", p.Endpoint, "reason", p.Change)
		if p.Endpoint != "" {
			a.quiet(ctx, p)
		}
		if ctx.Err() != nil {
			return // it is ended with the others, if at all
		}
		a.stops <- struct{}{}
		ended := a.stop(ctx, p, a.cfg.Grace)
		<-a.stops
		if !ended { // the next look leads here again
			return
		}
	}
	a.farewell(ctx, p)
	a.complain(ctx, "ended pod not forgotten, trying again", id, a.driver.Forget(ctx, id))
}

// quiet lets a worker end its jobs, for DrainTime at most. It is asked to drain
// in any case: whoever drained its token may not have said it all.
func (a *agent) quiet(ctx context.Context, p pod.Pod) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.DrainTime)
	defer cancel()
	token, err := a.registry.Tokens.Find(ctx, p.Endpoint, p.ID)
	if err != nil {
		return // nobody lets it in
	}
	since := a.queue.Now()
	if a.tell(ctx, p.ID, p.Change) != nil {
		return
	}
	if token.Draining {
		since = time.Time{}
	} else if _, err := a.registry.Tokens.Drain(ctx, p.Endpoint, p.ID); err != nil {
		return
	}
	a.awaitQuiet(ctx, p, since)
}
