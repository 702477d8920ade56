package autoscaler

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flightline/services/autoscaler/driver"
	"flightline/shared/endpoint"
	"flightline/shared/pod"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// busyWorker is the machine of one worker, busy, which holds a job and has no limit to
// its drain.
type busyWorker struct {
	*env
	*engine
	looks atomic.Int32 // how often the machine was looked at
}

func newBusyWorker(t *testing.T) *busyWorker {
	t.Helper()
	s := newEnv(t)
	b := &busyWorker{env: s, engine: s.engine("machine")}
	b.listed = func() { b.looks.Add(1) }
	s.endpoint("ep", bounds(0, 1))
	s.update("ep", func(e *endpoint.Endpoint) { e.IdleTimeout = time.Hour })
	s.autoscalerOf(Config{DrainTime: never}, b.engine)
	s.pod("busy", of("ep"))
	testenv.EventuallyNone(t, func() string {
		b.hold("busy", "job")
		return s.stateOf("ep", "busy", registry.WorkerRunning)
	})
	return b
}

// drain does what the API's drain of a worker does.
func (b *busyWorker) drain() {
	b.t.Helper()
	if _, err := b.env.registry.Pods.Drain(b.t.Context(), "busy", "by request", b.queue.Now()); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.env.registry.Tokens.Drain(b.t.Context(), "ep", "busy"); err != nil {
		b.t.Fatal(err)
	}
}

// drains waits until the worker is asked to drain.
func (b *busyWorker) drains() {
	b.t.Helper()
	testenv.Eventually(b.t, "the worker is asked to drain", func() bool {
		token, err := b.env.registry.Tokens.Find(b.t.Context(), "ep", "busy")
		return err == nil && token.Draining
	})
}

// staysFor fails the test if the worker is stopped within this many looks.
func (b *busyWorker) staysFor(looks int32) {
	b.t.Helper()
	until := b.looks.Load() + looks
	testenv.Eventually(b.t, "the machine is looked at, or the worker stopped", func() bool {
		return len(b.pods()) == 0 || b.looks.Load() >= until
	})
	if len(b.pods()) == 0 {
		b.t.Fatal("the worker was stopped with its job")
	}
}

// A store that is away for a moment is no reason to take a worker's job from it.
func TestAWorkerThatCannotBeAskedToDrainKeepsItsJob(t *testing.T) {
	s := newBusyWorker(t)
	s.limitTokens(1) // no write fits
	s.move("busy", pod.Remove, nil)
	s.staysFor(10)
	s.limitTokens(-1)
	s.drains()
	s.hold("busy")
	testenv.Eventually(t, "the worker is stopped", func() bool { return len(s.pods()) == 0 })
}

// Nor is it when the autoscaler is stopped.
func TestAWorkerThatCannotBeAskedToDrainKeepsItsJobWhenWeStop(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.busyAgent(e)
	s.limitTokens(1) // no write fits
	tried, ended := make(chan struct{}, 100), make(chan bool, 1)
	e.listed = func() {
		select {
		case tried <- struct{}{}:
		default:
		}
	}
	p := s.get("busy")
	go func() { ended <- a.finish(t.Context(), p, time.Now().Add(never)) }()
	select {
	case <-tried:
	case <-ended:
		t.Fatal("the worker was stopped with its job")
	}
	s.limitTokens(-1)
	testenv.EventuallyNone(t, func() string { return s.asked("ep", "busy") })
	e.hold("busy")
	if !<-ended {
		t.Error("got it not stopped")
	}
	if p = s.get("busy"); len(p.Cut) > 0 {
		t.Errorf("got %v, want no job noted", p.Cut)
	}
}

// A worker's heartbeat does not name what it was handed since, and a signal ends many a
// worker at once, such as one on RunPod's SDK before 1.7.3.
func TestAWorkerThatMayHaveAJobIsNotEndedAtOnceWhenWeStop(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.busyAgent(e)
	e.hold("busy")
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "busy", registry.WorkerIdle) })
	defer func() { _ = e.Stop(t.Context(), "busy", 0) }()
	p := s.get("busy")
	busy := func(when string, want bool) {
		t.Helper()
		if got := a.closeIfBusy(t.Context(), p); got != want {
			t.Errorf("%s: got busy %v, want %v", when, got, want)
		}
	}
	busy("its endpoint has no queue", false)
	at := s.endpoint("ep")
	busy("no job waits or runs", false)
	s.submit(at, false)
	busy("a job waits", true)
	s.take(at, "busy")
	busy("a job was handed out", true)
}

// busyAgent is an agent whose one worker, busy, has a job and no limit to end it when the
// agent stops.
func (s *env) busyAgent(e *engine) *agent {
	s.t.Helper()
	a := s.agentOf(e)
	a.cfg.Closing = never
	s.pod("busy", at, of("ep"))
	if _, _, err := s.registry.Tokens.IssueForFleet(s.t.Context(), "ep", "busy"); err != nil {
		s.t.Fatal(err)
	}
	if err := e.Start(s.t.Context(), driver.Start{PodID: "busy", Endpoint: "ep"}); err != nil {
		s.t.Fatal(err)
	}
	e.hold("busy", "job")
	testenv.EventuallyNone(s.t, func() string { return s.stateOf("ep", "busy", registry.WorkerRunning) })
	return a
}

func TestAWorkerKeepsItsJobWhenWeStopWhileTheBusIsAway(t *testing.T) {
	s := newEnv(t)
	e := s.engine("machine")
	a := s.busyAgent(e)
	looks, ended := make(chan struct{}, 100), make(chan struct{})
	e.listed = func() {
		select {
		case looks <- struct{}{}:
		default:
		}
	}
	s.Stop()
	away := time.Now()
	go func() {
		defer close(ended)
		a.close(t.Context())
	}()
	<-looks // for what is to end
	select {
	case <-looks: // whether it goes on
	case <-ended:
		t.Fatal("the worker was stopped with its job")
	}
	testenv.Eventually(t, "its heartbeats have expired", func() bool { return time.Since(away) > 3*registry.BeatEvery })
	s.Start()
	testenv.EventuallyNone(t, func() string { return s.asked("ep", "busy") })
	e.hold("busy")
	<-ended
	if p := s.get("busy"); len(p.Cut) > 0 || p.Change != endedWithUs {
		t.Errorf("got %v cut, %q, want that it ended its job", p.Cut, p.Change)
	}
}

// An endpoint may be given to workers that its owner starts while jobs run.
func TestAWorkerKeepsItsJobWhenItsEndpointHasNoDriverAnyMore(t *testing.T) {
	s := newBusyWorker(t)
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Driver = "external" })
	s.drains()
	s.staysFor(40)
	if p := s.get("busy"); p.Status != pod.Running {
		t.Errorf("got %s: %s, want that it ends its job", p.Status, p.Change)
	}
	s.hold("busy")
	if p := s.status("busy", pod.Terminated); p.Change != "its endpoint has no driver any more" {
		t.Errorf("got %q", p.Change)
	}
}

// A worker that drains may be silent for as long as any other one.
func TestAWorkerThatDrainsAndIsSilentKeepsItsJob(t *testing.T) {
	s := newBusyWorker(t)
	s.drain()
	s.drains()
	s.speak("busy", mute)
	quiet := time.Now()
	testenv.Eventually(t, "nothing was heard of it for long", func() bool { return time.Since(quiet) > silentDrained })
	s.staysFor(40)
	if p := s.get("busy"); p.Status != pod.Running {
		t.Errorf("got %s: %s, want that it drains on", p.Status, p.Change)
	}
}

// A worker that took a job a moment before its token was drained has not named it yet.
func TestAWorkerThatIsRemovedRightAfterItsDrainKeepsItsJob(t *testing.T) {
	s := newBusyWorker(t)
	s.hold("busy")
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "busy", registry.WorkerIdle) })
	s.speak("busy", mute)
	s.hold("busy", "job")
	s.drain()
	s.move("busy", pod.Remove, nil)
	s.staysFor(20)
}

func TestADrainThatFailedIsDecidedAgain(t *testing.T) {
	s := newEnv(t)
	e, said := s.engine("machine"), &testenv.Log{}
	s.endpoint("ep", bounds(1, 1))
	s.autoscalerOf(Config{Log: slog.New(slog.NewTextHandler(said, nil))}, e)
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "ep-0-1", registry.WorkerIdle) })
	s.limitTokens(1) // no write fits
	s.update("ep", func(e *endpoint.Endpoint) { e.Fleet.Command = []string{"other"} })
	testenv.Eventually(t, "the drain has failed", func() bool { return strings.Contains(said.String(), "fleet not scaled") })
	s.limitTokens(-1)
	testenv.EventuallyNone(t, func() string { return s.stateOf("ep", "ep-0-2", registry.WorkerIdle) })
}

// limitTokens bounds what can be written of a token, in bytes; -1 is no bound.
func (s *env) limitTokens(bytes int32) {
	s.t.Helper()
	stream, err := s.JS.Stream(s.t.Context(), streams.Bucket(streams.BucketTokens))
	if err != nil {
		s.t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.MaxMsgSize = bytes
	if _, err := s.JS.UpdateStream(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}
