package streams_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// F16: a server that is restarted before it delivers again what was given back delivers it
// once its AckWait is over, which a delay has put to now.
func TestF16WhatWasGivenBackWaitsAfterARestartUnlessWithADelay(t *testing.T) {
	t.Parallel()
	const moment = 2 * time.Second // the AckWait is 30 s
	for line, wait := range map[string]time.Duration{"-NAK": moment, `-NAK {"delay":1}`: within} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			publish(t.Context(), t, b.JS, message(streams.JobSubject(b.e.ID, job.Normal, "job"), ""))
			held := fetch(t, b.JS, b.e.ID)
			if err := b.NC.Publish(held.Reply(), []byte(line)); err != nil {
				t.Fatal(err)
			}
			if err := b.NC.Flush(); err != nil {
				t.Fatal(err)
			}
			b.Stop()
			b.Start()
			var again jetstream.MessageBatch
			testenv.Retry(t, func() error {
				c, err := b.JS.Consumer(t.Context(), streams.Jobs(b.e.ID), streams.Consumer(job.Normal))
				if err == nil {
					again, err = c.Fetch(1, jetstream.FetchMaxWait(wait))
				}
				return err
			})
			if _, came := <-again.Messages(); came == (wait == moment) {
				t.Errorf("within %v a message came: %t; if it comes without a delay, bus.GiveBack may go", wait, came)
			}
		})
	}
}
