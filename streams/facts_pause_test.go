package streams_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

func consumer(t *testing.T, js jetstream.JetStream, endpoint string) jetstream.Consumer {
	t.Helper()
	c, err := js.Consumer(t.Context(), streams.Jobs(endpoint), streams.Consumer(job.Normal))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pausedFor is how long the pause of the endpoint's consumer has yet to go, as
// the server has it.
func pausedFor(t *testing.T, js jetstream.JetStream, endpoint string) time.Duration {
	t.Helper()
	info, err := consumer(t, js, endpoint).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.PauseRemaining
}

func (b *env) pause(t *testing.T, d time.Duration) {
	t.Helper()
	b.e.PausedUntil = time.Now().Add(d)
	if err := streams.ApplyPause(t.Context(), b.JS, b.e, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func nothing(t *testing.T, js jetstream.JetStream, endpoint string, d time.Duration) {
	t.Helper()
	if m, err := consumer(t, js, endpoint).Next(jetstream.FetchMaxWait(d)); !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoMessages) {
		t.Errorf("got %v, %v; want nothing while paused", m, err)
	}
}

// A paused consumer delivers neither what is new nor what was not acknowledged
// in time; acknowledgements and extensions of what is held count. What waits
// comes with the end of the pause, without anybody's doing, also to a pull
// that was open all the while.
func TestAPausedConsumerDeliversNothingAndResumesByItself(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.e.Lease = time.Second
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, b.e); err != nil {
		t.Fatal(err)
	}
	for _, id := range []job.ID{"done", "dropped"} {
		publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, id), ""))
	}
	done, dropped := fetch(t, b.JS, b.e.ID), fetch(t, b.JS, b.e.ID)
	b.pause(t, 4*time.Second)
	begun := time.Now()
	publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "new"), ""))
	if err := done.InProgress(); err != nil {
		t.Error(err)
	}
	if err := done.DoubleAck(t.Context()); err != nil {
		t.Errorf("acknowledge while paused: %v", err)
	}
	nothing(t, b.JS, b.e.ID, 2*time.Second) // longer than the lease of what was dropped
	info, err := stream(t, b.JS, streams.Jobs(b.e.ID)).Info(t.Context())
	if err != nil || info.State.Msgs != 2 {
		t.Errorf("got %d messages, %v; want the acknowledged one gone", info.State.Msgs, err)
	}
	got := map[string]bool{}
	for range 2 {
		got[fetch(t, b.JS, b.e.ID).Subject()] = true
	}
	if waited := time.Since(begun); waited < 3*time.Second {
		t.Errorf("resumed after %v, want 4 s", waited)
	}
	if !got[dropped.Subject()] || !got[streams.JobSubject(b.e.ID, job.Normal, "new")] {
		t.Errorf("got %v after the pause", got)
	}
}

// A pull that takes what is there and does not wait is answered "nothing",
// though something waits: shared/queue purges without one then.
func TestAPausedConsumerSaysThatNothingWaits(t *testing.T) {
	b := start(t)
	publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "a"), ""))
	b.pause(t, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	m, err := b.NC.RequestWithContext(ctx, bus.PullNext(streams.Jobs(b.e.ID), streams.Consumer(job.Normal)), []byte(`{"batch":1,"no_wait":true}`))
	if err != nil || m.Header.Get("Status") != "404" {
		t.Errorf("got %v, %v; want 404", m, err)
	}
	c := consumer(t, b.JS, b.e.ID)
	testenv.Eventually(t, "it is paused, with one that waits", func() bool { // counted after the acknowledgement
		info, err := c.Info(t.Context())
		return err == nil && info.Paused && info.NumPending == 1
	})
}

// Applying an endpoint again neither ends, begins nor changes the pause of
// consumers that exist; a new consumer begins with it.
func TestApplyKeepsAPause(t *testing.T) {
	b := start(t)
	unpaused := b.e
	b.pause(t, time.Hour)
	other := b.e
	other.PausedUntil = time.Now().Add(10 * time.Hour)
	for _, e := range []endpoint.Endpoint{unpaused, other} {
		if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, e); err != nil {
			t.Fatal(err)
		}
		if got := pausedFor(t, b.JS, b.e.ID); got < 59*time.Minute || got > time.Hour {
			t.Errorf("applied with %v: paused for %v, want an hour", e.PausedUntil, got)
		}
	}
	b.e.PausedUntil = time.Time{}
	for range 2 { // it may be repeated
		if err := streams.ApplyPause(t.Context(), b.JS, b.e, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if got := pausedFor(t, b.JS, b.e.ID); got != 0 {
		t.Errorf("resumed: paused for %v", got)
	}
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, other); err != nil {
		t.Fatal(err)
	}
	if got := pausedFor(t, b.JS, b.e.ID); got != 0 {
		t.Errorf("applied to one that is not paused: paused for %v", got)
	}
	born := endpointOf(t, "born")
	born.PausedUntil = time.Now().Add(time.Hour)
	if err := streams.ApplyEndpoint(t.Context(), b.JS, streams.Config{}, born); err != nil {
		t.Fatal(err)
	}
	if got := pausedFor(t, b.JS, born.ID); got < 59*time.Minute {
		t.Errorf("made with a pause: paused for %v, want an hour", got)
	}
}

// A pause survives a SIGKILL, and ends by itself afterwards.
func TestAPauseSurvivesAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	server, js := newKillable(t)
	e := endpointOf(t, "ep")
	if err := streams.ApplyEndpoint(t.Context(), js, streams.Config{}, e); err != nil {
		t.Fatal(err)
	}
	e.PausedUntil = time.Now().Add(time.Hour)
	if err := streams.ApplyPause(t.Context(), js, e, time.Now()); err != nil {
		t.Fatal(err)
	}
	publish(t.Context(), t, js, message(streams.JobSubject(e.ID, job.Normal, "a"), ""))

	server.restart(t, nil)

	if got := pausedFor(t, js, e.ID); got < 58*time.Minute {
		t.Errorf("paused for %v after a kill, want an hour", got)
	}
	e.PausedUntil = time.Now().Add(2 * time.Second)
	if err := streams.ApplyPause(t.Context(), js, e, time.Now()); err != nil {
		t.Fatal(err)
	}
	fetch(t, js, e.ID)
}
