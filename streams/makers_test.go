package streams_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/shared/retry"
	"flightline/shared/testenv"
	"flightline/streams"
)

// Three makers start together on an empty cluster, and one of them is killed
// halfway: the others end all the same.
func TestMakersStartTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take some seconds")
	}
	t.Parallel()
	c := testenv.NewCluster(t)
	within, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	killed := c.Connect(t)
	go func() {
		_ = streams.Apply(within, open(t, killed), streams.Config{Replicas: 3}) // it is killed
	}()
	var makers errgroup.Group
	for range 2 {
		js := open(t, c.Connect(t))
		makers.Go(func() error { // tries again after a broken connection, as serve does
			return retry.Do(within, retry.Every(time.Second), testenv.IsLate, func() error {
				return streams.Apply(within, js, streams.Config{Replicas: 3})
			})
		})
	}
	for made(within, c.JS) < 5 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-within.Done():
			t.Fatal("no maker has come far enough to be killed")
		}
	}
	killed.Close()
	if err := makers.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := streams.Check(within, c.JS, streams.Config{Replicas: 3}); err != nil {
		t.Error(err)
	}
}

func open(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// made counts the streams that are there.
func made(ctx context.Context, js jetstream.JetStream) (n int) {
	for range js.StreamNames(ctx).Name() {
		n++
	}
	return n
}

// A stream in a cluster that has no leader yet answers nothing.
func TestAStreamThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := testenv.NewServer(t)
	const stream, prefix = "ASKED", "api"
	if _, err := s.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream}); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	testenv.Handle(t, s.NC, prefix+".>", func(m *nats.Msg) {
		if asked.Add(1) == 1 {
			return
		}
		_ = s.NC.PublishMsg(&nats.Msg{Subject: "$JS.API" + strings.TrimPrefix(m.Subject, prefix), Reply: m.Reply, Data: m.Data})
	})
	js, err := jetstream.NewWithAPIPrefix(s.NC, prefix)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := streams.MarkRecovered(ctx, js, stream, time.Now()); err != nil {
		t.Errorf("after %d questions: %v", asked.Load(), err)
	}
}
